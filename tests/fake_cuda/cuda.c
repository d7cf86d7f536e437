// As much of CUDA's driver as crates/collectives/src/nccl uses and CubeCL asks when it opens a device, in host memory: every stream is a thread with a queue, an event is a set
// of places in queues. For tests only. Switches, by environment:
//   FAKE_CUDA_LOG      a file that gets a line for each call that orders work
//   FAKE_CUDA_INIT     what cuInit returns
//   FAKE_CUDA_DEVICES  how many there are (1)
//   FAKE_CUDA_UUID     a number, the first device's (1)
// CUDA_VISIBLE_DEVICES, as numbers, says which of them a process sees, in its order.
// Compiled with -DWITHOUT_CONTEXT_EVENTS it is a driver from before CUDA 12.5.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_READY = 600 };
enum { STREAMS = 64 };

typedef struct Op {
    void (*run)(void *);
    void *argument;
    struct Op *next;
} Op;

typedef struct {
    Op *first, *last;
    uint64_t launched, done;
    int ends;
} Stream;

typedef struct {
    int count;
    int stream[STREAMS];
    uint64_t at[STREAMS];
} Event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static Stream streams[STREAMS];
static int stream_count;
static int retained;
static char primary;
// What every stream to come has to wait for.
static Event barrier;
static __thread void *current;

void fake_log(const char *line) {
    const char *path = getenv("FAKE_CUDA_LOG");
    if (!path) return;
    char text[200];
    int length = snprintf(text, sizeof text, "%s\n", line);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(file, text, length) != length) abort();
    close(file);
}

int fake_in_context(void) { return current == &primary && retained > 0; }

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static void *work(void *argument) {
    Stream *stream = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!stream->first && !stream->ends) pthread_cond_wait(&change, &lock);
        Op *op = stream->first;
        if (!op) break;
        stream->first = op->next;
        if (!op->next) stream->last = NULL;
        pthread_mutex_unlock(&lock);
        op->run(op->argument);
        free(op);
        pthread_mutex_lock(&lock);
        stream->done++;
        pthread_cond_broadcast(&change);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void launch_locked(Stream *stream, void (*run)(void *), void *argument) {
    Op *op = malloc(sizeof *op);
    *op = (Op){run, argument, NULL};
    if (stream->last) stream->last->next = op; else stream->first = op;
    stream->last = op;
    stream->launched++;
    pthread_cond_broadcast(&change);
}

// For the fake NCCL, which launches from threads of its own.
void fake_launch(void *stream, void (*run)(void *), void *argument) {
    pthread_mutex_lock(&lock);
    launch_locked(stream, run, argument);
    pthread_mutex_unlock(&lock);
}

static int come(const Event *event) {
    for (int i = 0; i < event->count; i++)
        if (streams[event->stream[i]].done < event->at[i]) return 0;
    return 1;
}

static void wait_for(void *argument) {
    pthread_mutex_lock(&lock);
    while (!come(argument)) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    free(argument);
}

static void wait_locked(Stream *stream, const Event *event) {
    Event *copy = malloc(sizeof *copy);
    *copy = *event;
    launch_locked(stream, wait_for, copy);
}

static void record_all(Event *event) {
    event->count = stream_count;
    for (int i = 0; i < stream_count; i++) {
        event->stream[i] = i;
        event->at[i] = streams[i].launched;
    }
}

int cuInit(unsigned flags) { (void)flags; return number("FAKE_CUDA_INIT", SUCCESS); }
int cuDriverGetVersion(int *version) { *version = 12080; return SUCCESS; }

// The machine's number of the device that this process counts as `ordinal`; -1 where it sees none. As with the real
// driver, the list ends before the first that is not there.
static int visible(int ordinal) {
    int there = number("FAKE_CUDA_DEVICES", 1);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) return ordinal < there ? ordinal : -1;
    for (char *end;; list = end + 1) {
        long device = strtol(list, &end, 10);
        if (end == list || device < 0 || device >= there) return -1;
        if (ordinal-- == 0) return (int)device;
        if (*end != ',') return -1;
    }
}

int cuDeviceGetCount(int *count) {
    *count = 0;
    while (visible(*count) >= 0) ++*count;
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return visible(ordinal) >= 0 ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, 0, 16);
    uuid[15] = (unsigned char)(number("FAKE_CUDA_UUID", 1) + visible(device));
    return SUCCESS;
}

// What CubeCL asks of a device: one of compute capability 9.0.
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 1: *value = 1024; break;     // threads in a block
    case 2: case 3: *value = 1024; break;
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;
    case 6: case 7: *value = 65535; break;
    case 10: *value = 32; break;      // threads in a warp
    case 16: *value = 132; break;     // multiprocessors
    case 75: *value = 9; break;
    case 76: *value = 0; break;
    case 97: *value = 232448; break;  // shared memory of a block
    default: *value = 0;
    }
    return SUCCESS;
}

int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, length, "NVIDIA H200 of the tests, number %d", device);
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 1ull << 37; return SUCCESS; }
int cuDeviceGetPCIBusId(char *id, int length, int device) { (void)id, (void)length, (void)device; return INVALID_VALUE; }

int cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    fake_log("cuDevicePrimaryCtxRetain");
    pthread_mutex_lock(&lock);
    retained++;
    pthread_mutex_unlock(&lock);
    *context = &primary;
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    fake_log("cuDevicePrimaryCtxRelease");
    pthread_mutex_lock(&lock);
    int result = retained-- > 0 ? SUCCESS : INVALID_CONTEXT;
    pthread_mutex_unlock(&lock);
    return result;
}

int cuCtxSetCurrent(void *context) {
    if (context != &primary || retained <= 0) return INVALID_CONTEXT;
    current = context;
    return SUCCESS;
}

int cuCtxSynchronize(void) {
    if (!fake_in_context()) return INVALID_CONTEXT;
    fake_log("cuCtxSynchronize");
    Event all;
    pthread_mutex_lock(&lock);
    record_all(&all);
    while (!come(&all)) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuStreamCreate(void **stream, unsigned flags) {
    if (!fake_in_context()) return INVALID_CONTEXT;
    // 1: it does not wait for the default stream.
    if (flags != 1 || stream_count == STREAMS) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    Stream *new = &streams[stream_count++];
    wait_locked(new, &barrier);
    pthread_mutex_unlock(&lock);
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, new)) abort();
    pthread_detach(thread);
    *stream = new;
    return SUCCESS;
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return SUCCESS; }

int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(stream, flags);
}

int cuStreamDestroy_v2(Stream *stream) {
    pthread_mutex_lock(&lock);
    stream->ends = 1;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuStreamSynchronize(Stream *stream) {
    pthread_mutex_lock(&lock);
    uint64_t until = stream->launched;
    while (stream->done < until) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuEventCreate(Event **event, unsigned flags) {
    if (!fake_in_context()) return INVALID_CONTEXT;
    // 2: without a time.
    if (flags != 2) return INVALID_VALUE;
    *event = calloc(1, sizeof **event);
    return SUCCESS;
}

int cuEventDestroy_v2(Event *event) { free(event); return SUCCESS; }

int cuEventRecord(Event *event, Stream *stream) {
    fake_log("cuEventRecord");
    pthread_mutex_lock(&lock);
    event->count = 1;
    event->stream[0] = (int)(stream - streams);
    event->at[0] = stream->launched;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuEventQuery(Event *event) {
    pthread_mutex_lock(&lock);
    int result = come(event) ? SUCCESS : NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    if (flags) return INVALID_VALUE;
    fake_log("cuStreamWaitEvent");
    pthread_mutex_lock(&lock);
    wait_locked(stream, event);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

#ifndef WITHOUT_CONTEXT_EVENTS
int cuCtxRecordEvent(void *context, Event *event) {
    if (context != &primary) return INVALID_CONTEXT;
    fake_log("cuCtxRecordEvent");
    pthread_mutex_lock(&lock);
    record_all(event);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuCtxWaitEvent(void *context, Event *event) {
    if (context != &primary) return INVALID_CONTEXT;
    fake_log("cuCtxWaitEvent");
    pthread_mutex_lock(&lock);
    for (int i = 0; i < stream_count; i++)
        if (!streams[i].ends) wait_locked(&streams[i], event);
    barrier = *event;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
#endif

int cuMemAlloc_v2(void **address, size_t bytes) { return (*address = malloc(bytes)) ? SUCCESS : INVALID_VALUE; }
int cuMemFree_v2(void *address) { free(address); return SUCCESS; }

typedef struct {
    void *to;
    const void *from;
    size_t bytes;
    void *owned;
} Copy;

static void copy(void *argument) {
    Copy *c = argument;
    memcpy(c->to, c->from, c->bytes);
    free(c->owned);
    free(c);
}

// Of pageable memory, which is read before the call returns.
int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    Copy *c = malloc(sizeof *c);
    void *owned = malloc(bytes);
    memcpy(owned, from, bytes);
    *c = (Copy){to, owned, bytes, owned};
    fake_launch(stream, copy, c);
    return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    Copy *c = malloc(sizeof *c);
    *c = (Copy){to, from, bytes, NULL};
    fake_launch(stream, copy, c);
    return SUCCESS;
}

int cuLaunchHostFunc(void *stream, void (*run)(void *), void *argument) {
    fake_launch(stream, run, argument);
    return SUCCESS;
}

int cuGetErrorName(int error, const char **name) {
    *name = error == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : error == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_FAKE";
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    *text = error == NO_DEVICE ? "no CUDA-capable device is detected" : "an error of the fake";
    return SUCCESS;
}
