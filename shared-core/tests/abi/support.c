/* functions that all files of the C host use */

#include "host.h"


sszip_str
str(const char *s)
{
    sszip_str  result;

    result.data = (const uint8_t *) s;
    result.len = strlen(s);

    return result;
}


/* the number of a variable */

size_t
variable(const char *name)
{
    size_t     i;
    sszip_str  text;

    for (i = 0; /* void */ ; i++) {
        text = sszip_variable_name(i);
        check(text.len != 0);

        if (text.len == strlen(name)
            && memcmp(text.data, name, text.len) == 0)
        {
            return i;
        }
    }
}


/* checks the value of a variable; NULL if it must be unset */

void
check_variable(sszip_exchange *exchange, const char *name, const char *wanted)
{
    sszip_str  text;

    ok(sszip_exchange_variable(exchange, variable(name), &text));

    if (wanted == NULL) {
        check(text.data == NULL);
        return;
    }

    check(text.len == strlen(wanted)
          && memcmp(text.data, wanted, text.len) == 0);
}
