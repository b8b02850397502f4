/* Declarations that the files of the C host share. */

#ifndef HOST_H
#define HOST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sszip.h>


#define check(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);   \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

#define ok(call)  check((call) == SSZIP_STATUS_OK)


static const sszip_str  none;


/* support.c */

sszip_str str(const char *s);

/* the number of a variable */
size_t variable(const char *name);

/* checks the value of a variable; NULL if it must be unset */
void check_variable(sszip_exchange *exchange, const char *name,
    const char *wanted);


/* plan.c */

void set(sszip_validated_config *plan, size_t *block, const char *name, const char *value);
void check_directive_errors(void);
void check_plan(void);


/* misuse.c, cache.c, script.c, run.c */

void check_misuse(const sszip_config *config);
void check_cache(const sszip_config *config);
void check_script_without_cache(void);
void check_script(void);
void run(const sszip_config *config, size_t body_length, size_t piece_length,
    const char *accept_encoding, int chunked);


#endif /* HOST_H */
