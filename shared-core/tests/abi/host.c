/*
 * A host in C: drives one exchange through sszip.h and writes to standard
 * output what a client would get.  tests/abi/c_hosts.rs compiles it with
 * AddressSanitizer, links the static library and reads the output.
 *
 *     host BODY_LENGTH PIECE_LENGTH ACCEPT_ENCODING length|chunked
 *
 * The body is BODY_LENGTH times 'a'.  The first line is the mode, then come
 * the head edits, an empty line, and the body.
 */

#include "host.h"


int
main(int argc, char **argv)
{
    size_t               inner, outer;
    sszip_str            message;
    sszip_validated_config          *plan;
    sszip_route          place;
    sszip_route_settings          rules;
    const sszip_config  *config;

    check(argc == 5);
    check(sszip_abi() == SSZIP_ABI);

    check_directive_errors();
    check_plan();

    ok(sszip_validated_config_new(none, none, &plan));
    inner = 0;
    outer = 0;
    set(plan, &outer, "sszip", "on");
    set(plan, &inner, "sszip_min_length", "100");
    set(plan, &inner, "sszip_cache", "on");
    memset(&place, 0, sizeof(place));
    place.size = sizeof(place);
    ok(sszip_validated_config_add_route(plan, &inner, outer, &place, &rules, &message));
    check(rules.enable && rules.caches && rules.reads_requests);
    check(rules.buffers == 2 && rules.buffer_size == 6144);
    config = rules.config;

    check_misuse(config);

    if (getenv("SSZIP_FAULT") == NULL || *getenv("SSZIP_FAULT") == 0) {
        /* these expectations hold only without a fault */
        check_script_without_cache();
        ok(sszip_validated_config_start(plan, 1));
        ok(sszip_validated_config_start(plan, 1));
        check_cache(config);
        check_script();
    }

    run(config, (size_t) atol(argv[1]), (size_t) atol(argv[2]), argv[3],
        strcmp(argv[4], "chunked") == 0);

    sszip_validated_config_free(plan);

    return 0;
}
