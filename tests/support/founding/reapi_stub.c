/* A library with the C interface of flux-sched's reapi_cli that decides nothing: STUB says what it does. It allocates
 * cores 0 and 1 of rank 0, 1, ..., as often as STUB_NODES says. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct context { uint64_t jobs; const char *error; };

static const char *mode (void) { const char *said = getenv ("STUB"); return said ? said : "answer"; }
static uint64_t nodes (void) { const char *said = getenv ("STUB_NODES"); return said ? strtoull (said, NULL, 10) : 2; }

struct context *reapi_cli_new (void) { return calloc (1, sizeof (struct context)); }
void reapi_cli_destroy (struct context *ctx) { free (ctx); }
const char *reapi_cli_get_err_msg (struct context *ctx) { return ctx->error ? ctx->error : ""; }

int reapi_cli_initialize (struct context *ctx, const char *graph, const char *options)
{
    printf ("the library prints what it likes\n");
    ctx->error = !strcmp (mode (), "refuse") ? "the graph has no root" : NULL;
    return ctx->error || !strstr (graph, "containment") || !strstr (options, "jgf") ? -1 : 0;
}

int reapi_cli_match_satisfy (struct context *ctx, const char *jobspec, bool *sat, double *ov)
{
    if (!strcmp (mode (), "crash")) abort ();
    if (!strcmp (mode (), "hang")) for (;;) pause ();
    if (!strcmp (mode (), "exit")) _exit (3);
    *sat = strcmp (mode (), "never") && strstr (jobspec, "\"core\"");
    return *sat ? 0 : -1;
}

int reapi_cli_match_allocate (struct context *ctx, bool orelse_reserve, const char *jobspec, uint64_t *jobid,
                              bool *reserved, char **R, int64_t *at, double *ov)
{
    static const char *r = "{\"version\":1,\"execution\":{\"R_lite\":[{\"rank\":\"%d\",\"children\":{\"core\":\"%s\"}}]}}";
    if (ctx->jobs >= nodes ()) return -1;
    *R = malloc (256);
    snprintf (*R, 256, r, (int)ctx->jobs, !strcmp (mode (), "short") ? "0" : "0-1");
    if (!strcmp (mode (), "garbage")) strcpy (*R, "]{ not JSON");
    if (!strcmp (mode (), "elsewhere")) snprintf (*R, 256, r, 99, "0");
    *jobid = ++ctx->jobs;
    return 0;
}

int reapi_cli_cancel (struct context *ctx, uint64_t jobid, bool noent_ok) { ctx->jobs--; return 0; }
