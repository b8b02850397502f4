/* configurations: the errors of directives, and the rules of routes */

#include "host.h"


static sszip_status
set_all(sszip_validated_config *plan, size_t *block, const char *name,
    const sszip_str *values, size_t n, sszip_str *message)
{
    sszip_directive  directive;

    memset(&directive, 0, sizeof(directive));
    directive.size = sizeof(directive);
    directive.name = str(name);
    directive.values = values;
    directive.nvalues = n;
    directive.file = str("f");
    directive.line = 1;

    return sszip_validated_config_set(plan, block, &directive, message);
}


static sszip_status
set_with_message(sszip_validated_config *plan, size_t *block, const char *name, const char *value,
    sszip_str *message)
{
    sszip_str  argument = str(value);

    return set_all(plan, block, name, &argument, 1, message);
}


void
set(sszip_validated_config *plan, size_t *block, const char *name, const char *value)
{
    sszip_str  message;

    ok(set_with_message(plan, block, name, value, &message));
    check(message.len == 0 && *block != 0);
}


static int
has(sszip_str message, const char *text)
{
    size_t  i;

    for (i = 0; i + strlen(text) <= message.len; i++) {
        if (memcmp(message.data + i, text, strlen(text)) == 0) {
            return 1;
        }
    }

    return 0;
}


void
check_directive_errors(void)
{
    size_t        block;
    sszip_str     message, arguments[2];
    sszip_validated_config   *plan;
    sszip_store   store;

    ok(sszip_validated_config_new(none, str("/no-such-folder/"), &plan));
    block = 0;

    check(set_with_message(plan, &block, "sszip_comp_level", "13", &message)
          == SSZIP_STATUS_INVALID);
    check(has(message, "from 0 to 12"));
    check(set_with_message(plan, &block, "comp_level", "1", &message)
          == SSZIP_STATUS_INVALID);
    check(has(message, "unknown setting"));
    check(block == 0);

    /* without memory for a result a call has no effect */
    check(set_with_message(plan, &block, "sszip_comp_level", "1", NULL)
          == SSZIP_STATUS_NULL);
    check(block == 0);
    check(set_with_message(NULL, &block, "sszip_comp_level", "1", &message)
          == SSZIP_STATUS_NULL);
    check(set_with_message(plan, NULL, "sszip_comp_level", "1", &message)
          == SSZIP_STATUS_NULL);
    check(sszip_validated_config_set(plan, &block, NULL, &message) == SSZIP_STATUS_NULL);

    /* a block that does not exist */
    block = 99;
    check(set_with_message(plan, &block, "sszip", "on", &message)
          == SSZIP_STATUS_INVALID);
    check(block == 99);
    block = 0;

    /* the path of a file is relative to the given folder */
    arguments[0] = str("https://node");
    arguments[1] = str("ca=no-such-file");
    check(set_all(plan, &block, "sszip_cache_head", arguments, 2, &message)
          == SSZIP_STATUS_INVALID);
    check(has(message, "\"/no-such-folder/no-such-file\" (2"));

    arguments[0] = str("redis://node");
    arguments[1] = str("key_file=no-such-file");
    check(set_all(plan, &block, "sszip_cache_fleet", arguments, 2, &message)
          == SSZIP_STATUS_INVALID);
    check(has(message, "\"/no-such-folder/no-such-file\" (2"));

    /* a valid setting with a warning */
    arguments[0] = str("eth_gasPrise");
    arguments[1] = str("1s");
    ok(set_all(plan, &block, "sszip_cache_valid", arguments, 2, &message));
    check(has(message, "\"eth_gasPrise\""));

    /* the folder of a store is checked, and a store has one owner */
    check(set_with_message(plan, &block, "sszip_cache_path", "/dev/null", &message)
          == SSZIP_STATUS_INVALID);
    check(has(message, "must be a folder of its own, and this is not a folder"));
    ok(set_with_message(plan, &block, "sszip_cache_owner", "unix:/s", &message));
    check(set_with_message(plan, &block, "sszip_cache_owner", "unix:/t", &message)
          == SSZIP_STATUS_INVALID);
    check(has(message, "is duplicate"));
    check(sszip_validated_config_owner_socket(plan).len == 0);
    ok(sszip_validated_config_check(plan, &message));
    check(memcmp(sszip_validated_config_owner_socket(plan).data, "unix:/s", 8) == 0);
    check(sszip_validated_config_store(plan, &store) == SSZIP_STATUS_MISUSE);
    check(sszip_validated_config_store(NULL, &store) == SSZIP_STATUS_NULL);
    check(sszip_validated_config_owner_socket(NULL).len == 0);

    sszip_validated_config_free(plan);
}


/* checks the rules of a configuration's routes */

void
check_plan(void)
{
    size_t        block, unset, of_another;
    sszip_str     message, servers[2];
    sszip_validated_config   *plan;
    sszip_route   place;
    sszip_route_settings   rules;

    ok(sszip_validated_config_new(none, none, &plan));
    block = 0;
    of_another = 99;

    set(plan, &block, "sszip", "on");
    set(plan, &block, "sszip_cache", "on");
    set(plan, &block, "sszip_cache_head", "http://node");

    memset(&place, 0, sizeof(place));
    check(sszip_validated_config_add_route(plan, &block, 0, &place, &rules, &message)
          == SSZIP_STATUS_MISUSE);
    place.size = sizeof(place);
    place.name = str("/p");
    place.handles_requests = true;
    check(sszip_validated_config_add_route(plan, &block, of_another, &place, &rules, &message)
          == SSZIP_STATUS_MISUSE);
    check(sszip_validated_config_add_route(plan, &of_another, block, &place, &rules, &message)
          == SSZIP_STATUS_MISUSE);
    check(sszip_validated_config_add_route(plan, &block, 0, &place, &rules, &message)
          == SSZIP_STATUS_INVALID);
    check(has(message, "cache_head\" in location \"/p\""));
    check(has(message, "\"namespace=NAME\" in f:1"));
    place.name_space = str("main");
    place.per_request = true;
    check(sszip_validated_config_add_route(plan, &block, 0, &place, &rules, &message)
          == SSZIP_STATUS_INVALID);
    check(has(message, "\"sszip_cache_namespace\" has variables"));

    /* a refused route has no settings, and its block no number */
    unset = 0;
    memset(&rules, 0, sizeof(rules));
    check(sszip_validated_config_add_route(plan, &unset, block, &place, &rules, &message)
          == SSZIP_STATUS_INVALID);
    check(unset == 0 && rules.config == NULL);

    place.per_request = false;
    ok(sszip_validated_config_add_route(plan, &block, 0, &place, &rules, &message));
    check(message.len == 0);

    servers[0] = str("10.0.0.1:8545");
    servers[1] = str("10.0.0.2:8545");
    ok(sszip_validated_config_add_upstream(plan, str("nodes"), servers, 2));
    ok(sszip_validated_config_add_upstream(plan, str("nobody"), NULL, 0));

    check(sszip_validated_config_check(plan, &message) == SSZIP_STATUS_INVALID);
    check(has(message, "needs \"sszip_cache_path\""));
    check(sszip_validated_config_owner_socket(plan).len == 0);

    check(sszip_validated_config_add_route(NULL, &block, 0, &place, &rules, &message)
          == SSZIP_STATUS_NULL);
    check(sszip_validated_config_add_route(plan, NULL, 0, &place, &rules, &message)
          == SSZIP_STATUS_NULL);
    check(sszip_validated_config_add_route(plan, &block, 0, NULL, &rules, &message)
          == SSZIP_STATUS_NULL);
    check(sszip_validated_config_add_route(plan, &block, 0, &place, NULL, &message)
          == SSZIP_STATUS_NULL);
    check(sszip_validated_config_add_upstream(NULL, none, NULL, 0) == SSZIP_STATUS_NULL);
    check(sszip_validated_config_check(plan, NULL) == SSZIP_STATUS_NULL);
    check(sszip_validated_config_start(NULL, 1) == SSZIP_STATUS_NULL);
    check(sszip_validated_config_new(none, none, NULL) == SSZIP_STATUS_NULL);

    sszip_validated_config_free(plan);
    sszip_validated_config_free(NULL);
}
