// As much of NCCL as crates/collectives/src/nccl uses, between processes of one host, by a file that all map. As NCCL's communicators in
// mode blocking = 0 do, it launches from a thread of its own. For tests only. Switches, by environment:
//   FAKE_NCCL_DIR          where communicators have their files
//   NCCL_DEBUG_FILE        as of NCCL itself: a file that says that it took part, `%p` is the process
//   FAKE_NCCL_VERSION      22703
//   FAKE_NCCL_INIT         `never`: this rank never joins; `fail`: it fails at it
//   FAKE_NCCL_HANG=N       this rank's all-reduce number N never ends
//   FAKE_NCCL_STUCK=N      it never gets into its stream
//   FAKE_NCCL_BLOCK=N      its call does not come back before the communicator is aborted
//   FAKE_NCCL_LOST=N       it never ends, and the communicator says that a peer is gone
// Compiled with -DWITHOUT_INIT it lacks a function that is needed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, SYSTEM = 2, INTERNAL = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6, IN_PROGRESS = 7 };
enum { INT32 = 2, FLOAT32 = 7, BFLOAT16 = 9 };
enum { SUM = 0, MAX = 2, MIN = 3, AVERAGE = 4 };
enum { RANKS = 8, BYTES = 1 << 20 };

void fake_log(const char *line);
int fake_in_context(void);
void fake_launch(void *stream, const char *name, void (*run)(void *), void *argument);
void fake_access(const void *address, size_t bytes, int writes);

typedef struct {
    char text[128];
} UniqueId;

typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
    int rest[7];
} Config;

typedef struct {
    atomic_int joined[RANKS];
    // The last all-reduce that the rank has put its data in for, and has taken the result of.
    atomic_long put[RANKS], taken[RANKS];
    char data[RANKS][BYTES];
} Shared;

typedef struct {
    Shared *shared;
    int rank, world;
    long calls;
    int finalized;
    atomic_int state, aborted, joining;
} Comm;

typedef struct {
    Comm *comm;
    void *buffer, *stream;
    size_t count;
    int dtype, op;
    long call;
} Call;

static int number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

static void log_call(const char *what, long call) {
    char line[100];
    snprintf(line, sizeof line, "%s %ld", what, call);
    fake_log(line);
}

static void say_version(void) {
    const char *pattern = getenv("NCCL_DEBUG_FILE"), *process = pattern ? strstr(pattern, "%p") : NULL;
    if (!process) return;
    char path[4096];
    snprintf(path, sizeof path, "%.*s%d%s", (int)(process - pattern), pattern, (int)getpid(), process + 2);
    FILE *file = fopen(path, "a");
    if (!file) return;
    fputs("the NCCL of the tests\n", file);
    fclose(file);
}

static void thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument)) abort();
    pthread_detach(thread);
}

int ncclGetVersion(int *version) {
    *version = getenv("FAKE_NCCL_VERSION") ? number("FAKE_NCCL_VERSION") : 22703;
    return SUCCESS;
}

const char *ncclGetErrorString(int result) {
    return result == REMOTE ? "remote process exited or there was a network error"
         : result == INVALID_USAGE ? "invalid usage" : result == INTERNAL ? "internal error" : "some error";
}

const char *ncclGetLastError(void *comm) { (void)comm; return "said the fake\n"; }

int ncclGetUniqueId(UniqueId *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->text, sizeof id->text, "%s/comm-%d", getenv("FAKE_NCCL_DIR"), getpid());
    int file = open(id->text, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || ftruncate(file, sizeof(Shared))) return SYSTEM;
    close(file);
    return SUCCESS;
}

// Until all ranks have come to `value`, or the communicator is aborted.
static int all(Comm *comm, atomic_long *values, long value) {
    for (int rank = 0; rank < comm->world;) {
        if (comm->aborted) return 0;
        if (atomic_load(&values[rank]) >= value) rank++; else usleep(100);
    }
    return 1;
}

static void *join_all(void *argument) {
    Comm *comm = argument;
    const char *how = getenv("FAKE_NCCL_INIT");
    if (!how) comm->shared->joined[comm->rank] = 1;
    for (int rank = 0; rank < comm->world && !comm->aborted;)
        if (comm->shared->joined[rank]) rank++; else usleep(100);
    comm->joining = 0;
    if (!comm->aborted) comm->state = SUCCESS;
    return NULL;
}

#ifndef WITHOUT_INIT
int ncclCommInitRankConfig(Comm **handle, int world, UniqueId id, int rank, Config *config) {
    if (config->magic != 0xcafebeef || config->size < 48 || config->version < 21400 || config->blocking != 0)
        return INVALID_ARGUMENT;
    if (!fake_in_context() || world > RANKS || rank >= world) return INVALID_USAGE;
    int file = open(id.text, O_RDWR);
    if (file < 0) return SYSTEM;
    Comm *comm = calloc(1, sizeof *comm);
    comm->shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    comm->rank = rank;
    comm->world = world;
    comm->joining = 1;
    say_version();
    const char *how = getenv("FAKE_NCCL_INIT");
    comm->state = how && !strcmp(how, "fail") ? INTERNAL : IN_PROGRESS;
    *handle = comm;
    thread(join_all, comm);
    return IN_PROGRESS;
}
#endif

int ncclCommGetAsyncError(Comm *comm, int *state) { *state = comm->state; return SUCCESS; }

static double get(const void *data, size_t i, int dtype) {
    if (dtype == INT32) return ((const int32_t *)data)[i];
    if (dtype == FLOAT32) return ((const float *)data)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static void set(void *data, size_t i, int dtype, double value) {
    if (dtype == INT32) { ((int32_t *)data)[i] = (int32_t)value; return; }
    float f = (float)value;
    if (dtype == FLOAT32) { ((float *)data)[i] = f; return; }
    uint32_t bits;
    memcpy(&bits, &f, 4);
    ((uint16_t *)data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// What runs "on the device".
static void reduce(void *argument) {
    Call *call = argument;
    Comm *comm = call->comm;
    Shared *shared = comm->shared;
    log_call("all-reduce begins", call->call);
    int never = number("FAKE_NCCL_HANG") == call->call || number("FAKE_NCCL_LOST") == call->call;
    while (never && !comm->aborted) usleep(100);
    size_t bytes = call->count * (call->dtype == BFLOAT16 ? 2 : 4);
    if (comm->aborted || !all(comm, shared->taken, call->call - 1)) goto end;
    fake_access(call->buffer, bytes, 0);
    memcpy(shared->data[comm->rank], call->buffer, bytes);
    shared->put[comm->rank] = call->call;
    if (!all(comm, shared->put, call->call)) goto end;
    fake_access(call->buffer, bytes, 1);
    for (size_t i = 0; i < call->count; i++) {
        double value = get(shared->data[0], i, call->dtype);
        for (int rank = 1; rank < comm->world; rank++) {
            double other = get(shared->data[rank], i, call->dtype);
            value = call->op == MAX ? fmax(value, other) : call->op == MIN ? fmin(value, other) : value + other;
        }
        set(call->buffer, i, call->dtype, call->op == AVERAGE ? value / comm->world : value);
    }
    shared->taken[comm->rank] = call->call;
    log_call("all-reduce ends", call->call);
end:
    free(call);
}

static void *launch(void *argument) {
    Call *call = argument;
    Comm *comm = call->comm;
    usleep(300);
    while (number("FAKE_NCCL_STUCK") == call->call && !comm->aborted) usleep(100);
    int lost = number("FAKE_NCCL_LOST") == call->call;
    if (!comm->aborted) fake_launch(call->stream, "an all-reduce", reduce, call);
    comm->state = lost ? REMOTE : SUCCESS;
    return NULL;
}

int ncclAllReduce(const void *send, void *receive, size_t count, int dtype, int op, Comm *comm, void *stream) {
    if (comm->state != SUCCESS || comm->aborted) return INVALID_USAGE;
    if (send != receive || count * 4 > BYTES) return INVALID_ARGUMENT;
    log_call("ncclAllReduce", ++comm->calls);
    if (number("FAKE_NCCL_BLOCK") == comm->calls) {
        while (!comm->aborted) usleep(100);
        return INTERNAL;
    }
    Call *call = malloc(sizeof *call);
    *call = (Call){comm, receive, stream, count, dtype, op, comm->calls};
    comm->state = IN_PROGRESS;
    thread(launch, call);
    return IN_PROGRESS;
}

static void *finalize(void *argument) {
    Comm *comm = argument;
    usleep(1000);
    comm->finalized = 1;
    comm->state = SUCCESS;
    return NULL;
}

int ncclCommFinalize(Comm *comm) {
    if (comm->state != SUCCESS) return INVALID_USAGE;
    fake_log("ncclCommFinalize");
    comm->state = IN_PROGRESS;
    thread(finalize, comm);
    return IN_PROGRESS;
}

int ncclCommDestroy(Comm *comm) {
    if (comm->state != SUCCESS || !comm->finalized) return INVALID_USAGE;
    fake_log("ncclCommDestroy");
    return SUCCESS;
}

int ncclCommAbort(Comm *comm) {
    fake_log("ncclCommAbort");
    comm->aborted = 1;
    while (comm->joining) usleep(100);
    return SUCCESS;
}
