// As much of CUDA's driver as crates/collectives/src/nccl and CubeCL use, in host memory: every stream
// is a thread with a queue, an event is a set of places in queues. A module of real PTX is checked as
// the driver does, and its launches only count. A module of the text that the tests' NVRTC (nvrtc.c)
// returns is executed, by that library. For tests only. Switches, by environment:
//   FAKE_CUDA_LOG      a file that gets a line for each call that orders work
//   FAKE_CUDA_INIT     what cuInit returns
//   FAKE_CUDA_DEVICES  how many there are (1)
//   FAKE_CUDA_UUID     a number, the first device's (1)
//   FAKE_CUDA_SM       the compute capability, as 75 (90)
//   FAKE_CUDA_NAME     the name of each device; CubeCL finds no tensor cores at 7.5 with `GTX` in it
//   FAKE_CUDA_SMS      multiprocessors (132)
//   FAKE_CUDA_MEMORY   bytes of a device (128 GiB); an allocation beyond them fails with 2
//   FAKE_CUDA_DRIVER   the CUDA version that the driver supports (12080)
//   FAKE_CUDA_FILL     the byte that new device memory consists of (0); 255 shows reads before writes
//   FAKE_CUDA_LOSE     `launch:N`: the Nth launch fails as it runs, and the device is lost with it (719)
//   FAKE_CUDA_NVRTC    the library that executes (libnvrtc.so)
//   FAKE_CUDA_FAVOUR   a word, as `mma_sync` or `cp_async`: kernels of matrix products whose text lacks it
//                      take long, so that CubeCL's tuner chooses others
//   FAKE_CUDA_RACES    a file that gets what races.h finds, which also goes to stderr
//   FAKE_CUDA_UNORDERED  streams do not wait for events, which races.h then finds
// CUDA_VISIBLE_DEVICES, as numbers, says which of them a process sees, in its order.
// Compiled with -DWITHOUT_CONTEXT_EVENTS it is a driver from before CUDA 12.5.
#define _GNU_SOURCE
#include "fibers.h"
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef WITHOUT_CONTEXT_EVENTS
enum { DRIVER = 12040 };
#else
enum { DRIVER = 12080 };
#endif

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_PTX = 218, UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, LAUNCH_OUT_OF_RESOURCES = 701, LAUNCH_FAILED = 719
};
// CubeCL has one per host thread, up to 129.
enum { STREAMS = 192 };
enum { DISABLE_TIMING = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Allocations by part of the memory, those that are unmapped too.
static struct Block **owners;
#include "races.h"

typedef struct Op {
    void (*run)(void *);
    void *argument;
    struct Op *next;
    int stream;
    uint64_t number;
    Clock clock;
} Op;

// `launched` and `done` go on when another stream takes the slot of one that has ended: clocks stay
// valid. `clock` is that of the last op.
typedef struct {
    Op *first, *last;
    uint64_t launched, done;
    int ends, is_free;
    pthread_cond_t work;
    Clock clock;
} Stream;

// Destroyed when neither its owner nor an op in a queue refers to it.
typedef struct {
    Clock clock;
    int references, has_time;
    struct timespec time;
} Event;

// An allocation: of device memory, or of pinned host memory.
typedef struct Block {
    char *start;
    size_t bytes, mapped;
    int is_pinned, is_freeing, is_freed, is_unmapped;
    // The ops of a stream that allocate and free it, or 0.
    uint32_t allocated_by, freed_by;
    // The work that one outlives that the host has freed.
    Clock *last_use;
    struct Block *next;
} Block;

static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static Stream streams[STREAMS];
static int stream_count;
static int retained;
static char primary;
// What every stream to come has to wait for.
static Clock barrier;
// What the host has waited for.
static Clock host;
static Block *blocks;
static size_t device_bytes;
// The error that every call returns once the device is lost.
static int lost;
static __thread void *current;
// The op that this thread, a stream's, runs.
static __thread Op *running;

void fake_log(const char *line) {
    const char *path = getenv("FAKE_CUDA_LOG");
    if (!path) return;
    char text[400];
    int length = snprintf(text, sizeof text, "%.398s\n", line);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(file, text, length) != length) abort();
    close(file);
}

int fake_in_context(void) { return current == &primary && retained > 0; }

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

// The error of a lost device.
static int is_lost(void) { return __atomic_load_n(&lost, __ATOMIC_ACQUIRE); }

static void lose(int error) { __atomic_store_n(&lost, error, __ATOMIC_RELEASE); }

static void *work(void *argument) {
    Stream *stream = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!stream->first && !stream->ends) pthread_cond_wait(&stream->work, &lock);
        Op *op = stream->first;
        if (!op) break;
        stream->first = op->next;
        if (!op->next) stream->last = NULL;
        pthread_mutex_unlock(&lock);
        running = op;
        op->run(op->argument);
        running = NULL;
        free(op);
        pthread_mutex_lock(&lock);
        stream->done++;
        pthread_cond_broadcast(&change);
    }
    stream->is_free = 1;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    return NULL;
}

// `name` is one that stays.
static void launch_locked(Stream *stream, const char *name, void (*run)(void *), void *argument) {
    Op *op = malloc(sizeof *op);
    op->run = run;
    op->argument = argument;
    op->next = NULL;
    op->stream = (int)(stream - streams);
    op->number = ++stream->launched;
    if (stream->last) stream->last->next = op; else stream->first = op;
    stream->last = op;
    set_clock(&stream->clock, op->stream, op->number);
    join(&stream->clock, &host);
    op->clock.count = 0;
    join(&op->clock, &stream->clock);
    note_site_locked(op->stream, op->number, name);
    pthread_cond_signal(&stream->work);
}

// For the fake NCCL, which launches from threads of its own.
void fake_launch(void *stream, const char *name, void (*run)(void *), void *argument) {
    pthread_mutex_lock(&lock);
    launch_locked(stream, name, run, argument);
    pthread_mutex_unlock(&lock);
}

static void begin_op(void) { begin_access(epoch(running->stream, running->number), &running->clock); }

// The op that runs accesses memory.
void fake_access(const void *address, size_t bytes, int writes) {
    begin_op();
    check_range(address, bytes, writes);
    end_access();
}

static int come(const Clock *clock) {
    for (int i = 0; i < clock->count; i++)
        if (streams[i].done < clock->at[i]) return 0;
    return 1;
}

static void host_waits_locked(const Clock *clock) {
    while (!come(clock)) pthread_cond_wait(&change, &lock);
    join(&host, clock);
}

static void wait_for(void *argument) {
    pthread_mutex_lock(&lock);
    while (!come(argument)) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    free(argument);
}

static void wait_locked(Stream *stream, const Clock *clock) {
    if (getenv("FAKE_CUDA_UNORDERED")) return;
    Clock *copy = malloc(sizeof *copy);
    *copy = *clock;
    join(&stream->clock, clock);
    launch_locked(stream, "a wait for an event", wait_for, copy);
}

static void record_all(Clock *clock) {
    clock->count = stream_count;
    for (int i = 0; i < stream_count; i++) clock->at[i] = streams[i].launched;
}

int cuInit(unsigned flags) { (void)flags; return number("FAKE_CUDA_INIT", SUCCESS); }
// NVRTC 13 asks a driver in its process for tables of functions that are not public, and goes without
// them if the table ends before what it looks for. Its first word is its size.
int cuGetExportTable(const void **table, const void *id) {
    static const size_t empty[8] = {sizeof(size_t)};
    (void)id;
    *table = empty;
    return SUCCESS;
}

int cuDriverGetVersion(int *version) { *version = number("FAKE_CUDA_DRIVER", DRIVER); return SUCCESS; }

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

static int capability(void) { return number("FAKE_CUDA_SM", 90); }

// The shared memory that a block can ask for.
static int shared_limit(void) {
    switch (capability()) {
    case 70: case 72: return 96 << 10;
    case 75: return 64 << 10;
    case 80: case 87: return 163 << 10;
    case 86: case 89: case 120: case 121: return 99 << 10;
    default: return capability() < 70 ? 48 << 10 : 227 << 10;
    }
}

// What CubeCL asks of a device.
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 1: *value = 1024; break;     // threads in a block
    case 2: case 3: *value = 1024; break;
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;
    case 6: case 7: *value = 65535; break;
    case 10: *value = 32; break;      // threads in a warp
    case 16: *value = number("FAKE_CUDA_SMS", 132); break;
    case 75: *value = capability() / 10; break;
    case 76: *value = capability() % 10; break;
    case 97: *value = shared_limit(); break;
    default: *value = 0;
    }
    return SUCCESS;
}

int cuDeviceGetName(char *name, int length, int device) {
    const char *claimed = getenv("FAKE_CUDA_NAME");
    if (claimed) snprintf(name, length, "%s", claimed);
    else snprintf(name, length, "NVIDIA H200 of the tests, number %d", device);
    return SUCCESS;
}

static size_t memory(void) {
    const char *bytes = getenv("FAKE_CUDA_MEMORY");
    return bytes ? strtoull(bytes, NULL, 10) : 1ull << 37;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = memory(); return SUCCESS; }
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
    Clock all;
    pthread_mutex_lock(&lock);
    record_all(&all);
    host_waits_locked(&all);
    pthread_mutex_unlock(&lock);
    return is_lost();
}

// A slot of a stream that has ended, or the next one.
static int free_slot_locked(void) {
    int slot = 0;
    while (slot < stream_count && !streams[slot].is_free) slot++;
    return slot;
}

int cuStreamCreate(void **stream, unsigned flags) {
    if (!fake_in_context()) return INVALID_CONTEXT;
    // 1: it does not wait for the default stream.
    if (flags != 1) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    int slot;
    while ((slot = free_slot_locked()) == STREAMS) {
        int ending = 0;
        for (int i = 0; i < STREAMS; i++) ending |= streams[i].ends;
        if (!ending) {
            pthread_mutex_unlock(&lock);
            return OUT_OF_MEMORY;
        }
        pthread_cond_wait(&change, &lock);
    }
    Stream *new = &streams[slot];
    if (slot == stream_count) {
        stream_count++;
        pthread_cond_init(&new->work, NULL);
    }
    new->ends = new->is_free = 0;
    new->clock.count = 0;
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
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuStreamSynchronize(Stream *stream) {
    pthread_mutex_lock(&lock);
    // Other threads may launch meanwhile.
    Clock clock = stream->clock;
    host_waits_locked(&clock);
    pthread_mutex_unlock(&lock);
    return is_lost();
}

int cuEventCreate(Event **event, unsigned flags) {
    if (!fake_in_context()) return INVALID_CONTEXT;
    if (is_lost()) return is_lost();
    // 1 lets cuEventSynchronize block, which it does anyway.
    if (flags & ~3u) return INVALID_VALUE;
    *event = calloc(1, sizeof **event);
    (*event)->references = 1;
    (*event)->has_time = !(flags & DISABLE_TIMING);
    return SUCCESS;
}

static void release_locked(Event *event) {
    if (--event->references == 0) free(event);
}

int cuEventDestroy_v2(Event *event) {
    pthread_mutex_lock(&lock);
    release_locked(event);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static void take_time(void *argument) {
    Event *event = argument;
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    release_locked(event);
    pthread_mutex_unlock(&lock);
}

int cuEventRecord(Event *event, Stream *stream) {
    fake_log("cuEventRecord");
    pthread_mutex_lock(&lock);
    if (event->has_time) {
        event->references++;
        launch_locked(stream, "an event", take_time, event);
    }
    event->clock = stream->clock;
    pthread_mutex_unlock(&lock);
    return is_lost();
}

int cuEventQuery(Event *event) {
    pthread_mutex_lock(&lock);
    int result = come(&event->clock) ? is_lost() : NOT_READY;
    if (result != NOT_READY) join(&host, &event->clock);
    pthread_mutex_unlock(&lock);
    return result;
}

int cuEventSynchronize(Event *event) {
    pthread_mutex_lock(&lock);
    // Its owner may record it again meanwhile.
    Clock clock = event->clock;
    host_waits_locked(&clock);
    pthread_mutex_unlock(&lock);
    return is_lost();
}

static int elapsed(float *milliseconds, Event *start, Event *end) {
    if (!start->has_time || !end->has_time) return INVALID_HANDLE;
    if (!start->clock.count || !end->clock.count) return INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    int result = come(&start->clock) && come(&end->clock) ? is_lost() : NOT_READY;
    if (result != NOT_READY) join(&host, &end->clock);
    *milliseconds = (float)((double)(end->time.tv_sec - start->time.tv_sec) * 1e3
                            + (double)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6);
    pthread_mutex_unlock(&lock);
    return result;
}

int cuEventElapsedTime(float *milliseconds, Event *start, Event *end) {
    return elapsed(milliseconds, start, end);
}
#ifndef WITHOUT_CONTEXT_EVENTS
int cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *end) {
    return elapsed(milliseconds, start, end);
}
#endif

int cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    if (flags) return INVALID_VALUE;
    fake_log("cuStreamWaitEvent");
    pthread_mutex_lock(&lock);
    wait_locked(stream, &event->clock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

#ifndef WITHOUT_CONTEXT_EVENTS
int cuCtxRecordEvent(void *context, Event *event) {
    if (context != &primary) return INVALID_CONTEXT;
    fake_log("cuCtxRecordEvent");
    pthread_mutex_lock(&lock);
    record_all(&event->clock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuCtxWaitEvent(void *context, Event *event) {
    if (context != &primary) return INVALID_CONTEXT;
    fake_log("cuCtxWaitEvent");
    pthread_mutex_lock(&lock);
    for (int i = 0; i < stream_count; i++)
        if (!streams[i].ends) wait_locked(&streams[i], &event->clock);
    join(&barrier, &event->clock);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
#endif

// ------------------------------------------------------------------ memory

static void remove_locked(Block **at) {
    Block *block = *at;
    *at = block->next;
    if (!block->is_pinned) device_bytes -= block->bytes;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    mmap(block->start, block->mapped, PROT_NONE, flags, -1, 0);
    madvise(block->start, block->mapped, MADV_DONTDUMP);
    size_t first = (size_t)(block->start - watch.memory) / WORD;
    madvise(&watch.cells[first], block->mapped / WORD * sizeof(fake_cell), MADV_DONTNEED);
    block->is_unmapped = 1;
    free(block->last_use);
    block->last_use = NULL;
}

// Unmaps freed memory that no work can use any more.
static void reclaim_locked(void) {
    for (Block **at = &blocks; *at;)
        if ((*at)->is_freed && (!(*at)->last_use || come((*at)->last_use))) remove_locked(at); else at = &(*at)->next;
}

// The allocation that `address` lies in, which may be freed.
static Block *find_locked(const void *address) {
    size_t offset = (size_t)((const char *)address - watch.memory);
    Block *block = offset < watch.bytes ? owners[offset / PART] : NULL;
    return block && (const char *)address < block->start + block->bytes ? block : NULL;
}

static void check_allocation(const char *address) {
    pthread_mutex_lock(&lock);
    const Block *block = find_locked(address);
    const uint32_t allocated_by = block ? block->allocated_by : 0, freed_by = block ? block->freed_by : 0;
    const int is_late = block && ((block->last_use && !has(block->last_use, watch.epoch))
                                  || (block->is_unmapped && !freed_by));
    pthread_mutex_unlock(&lock);
    if (!is_before(allocated_by)) report_race(address, allocated_by, "the first allocates, the second uses it");
    if (freed_by) report_race(address, freed_by, "the first frees, the second uses it");
    if (is_late) report_race(address, watch.epoch, "the host has freed what this op uses");
}

// Each allocation ends in a page that cannot be accessed.
static int allocate(void **address, size_t bytes, int is_pinned) {
    if (is_lost()) return is_lost();
    if (!bytes) return INVALID_VALUE;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t mapped = ((bytes + page - 1) & ~(page - 1)) + page;
    pthread_mutex_lock(&lock);
    reclaim_locked();
    while (!is_pinned && device_bytes + bytes > memory()) {
        Block *freed = blocks;
        while (freed && !freed->is_freed) freed = freed->next;
        if (!freed) {
            pthread_mutex_unlock(&lock);
            return OUT_OF_MEMORY;
        }
        pthread_cond_wait(&change, &lock);
        reclaim_locked();
    }
    if (!watch.memory) reserve();
    char *start = watch.memory + arena_used;
    size_t parts = (mapped + PART - 1) / PART;
    if (arena_used + parts * PART > watch.bytes || mprotect(start, mapped - page, PROT_READ | PROT_WRITE)) {
        fprintf(stderr, "fake_cuda: no addresses are left for %zu bytes\n", bytes);
        abort();
    }
    Block *block = calloc(1, sizeof *block);
    block->start = start;
    block->bytes = bytes;
    block->mapped = mapped;
    block->is_pinned = is_pinned;
    block->next = blocks;
    blocks = block;
    for (size_t i = 0; i < parts; i++) owners[arena_used / PART + i] = block;
    arena_used += parts * PART;
    if (!is_pinned) device_bytes += bytes;
    pthread_mutex_unlock(&lock);
    int fill = number("FAKE_CUDA_FILL", 0);
    if (fill && !is_pinned) memset(start, fill, bytes);
    *address = start;
    return SUCCESS;
}

// The allocation that starts there and can be freed.
static Block *find_allocated_locked(const void *address) {
    Block *block = find_locked(address);
    return block && block->start == address && !block->is_freed && !block->is_freeing ? block : NULL;
}

// The real driver waits for all work. This one lets the memory live until then.
static int release(void *address) {
    if (!address) return SUCCESS;
    pthread_mutex_lock(&lock);
    Block *block = find_allocated_locked(address);
    if (block) {
        block->is_freed = 1;
        block->last_use = malloc(sizeof *block->last_use);
        record_all(block->last_use);
    }
    reclaim_locked();
    pthread_mutex_unlock(&lock);
    return block ? is_lost() : INVALID_VALUE;
}

int cuMemAlloc_v2(void **address, size_t bytes) { return allocate(address, bytes, 0); }
int cuMemFree_v2(void *address) { return release(address); }
int cuMemAllocHost_v2(void **address, size_t bytes) { return allocate(address, bytes, 1); }
int cuMemFreeHost(void *address) { return release(address); }

static void nothing(void *argument) { (void)argument; }

int cuMemAllocAsync(void **address, size_t bytes, Stream *stream) {
    int result = allocate(address, bytes, 0);
    if (result) return result;
    pthread_mutex_lock(&lock);
    launch_locked(stream, "an allocation", nothing, NULL);
    find_locked(*address)->allocated_by = epoch((int)(stream - streams), stream->launched);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

// To free memory orders like a write of what has been used of it.
static void free_in_stream(void *argument) {
    Block *block = argument;
    begin_op();
    const size_t begin = (size_t)(block->start - watch.memory), end = begin + block->bytes;
    for (size_t at = begin; at < end; at += is_used[at / PART] ? WORD : PART) {
        const fake_cell *cell = &watch.cells[at / WORD];
        const uint32_t uses[] = {cell->write, cell->read[0], cell->read[1]};
        for (int i = 0; i < 3; i++)
            if (!is_before(uses[i])) report_race(watch.memory + at, uses[i], "the first uses it, the second frees");
    }
    // Before another op can run.
    pthread_mutex_lock(&lock);
    block->freed_by = watch.epoch;
    block->is_freed = 1;
    reclaim_locked();
    pthread_mutex_unlock(&lock);
    end_access();
}

int cuMemFreeAsync(void *address, Stream *stream) {
    pthread_mutex_lock(&lock);
    Block *block = find_allocated_locked(address);
    if (block) {
        block->is_freeing = 1;
        launch_locked(stream, "a release of memory", free_in_stream, block);
    }
    pthread_mutex_unlock(&lock);
    return block ? is_lost() : INVALID_VALUE;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    pthread_mutex_lock(&lock);
    *total = memory();
    *free_bytes = *total - device_bytes;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

// ------------------------------------------------------------------ copies

typedef struct {
    char *to;
    const char *from;
    size_t bytes, rows, to_pitch, from_pitch;
    void *owned;
    // Of pinned memory, at the call, and the ops that were done then.
    uint64_t digest;
    Clock done;
} Copy;

static uint64_t digest(const Copy *c) {
    uint64_t value = 1;
    for (size_t row = 0; row < c->rows; row++)
        for (size_t i = 0; i < c->bytes; i++)
            value = (value ^ (unsigned char)c->from[row * c->from_pitch + i]) * 0x100000001b3ull;
    return value | 1;
}

// Whether an op may have written the pinned memory that it reads since the call. (That a callback writes some that is copied
// after it is legal too; none does.)
static int is_written_in_streams(const Copy *c) {
    for (size_t row = 0; row < c->rows; row++)
        for (size_t i = 0; i < c->bytes; i++) {
            size_t offset = (size_t)(c->from + row * c->from_pitch + i - watch.memory);
            if (!has(&c->done, watch.cells[offset / WORD].write)) return 1;
        }
    return 0;
}

static void copy(void *argument) {
    Copy *c = argument;
    begin_op();
    if (c->digest && !is_written_in_streams(c) && c->digest != digest(c))
        report_race(c->from, watch.epoch, "the host changes pinned memory before it is copied");
    for (size_t row = 0; row < c->rows && !is_lost(); row++) {
        check_range(c->from + row * c->from_pitch, c->bytes, 0);
        check_range(c->to + row * c->to_pitch, c->bytes, 1);
        memmove(c->to + row * c->to_pitch, c->from + row * c->from_pitch, c->bytes);
    }
    end_access();
    free(c->owned);
    free(c);
}

// Pageable memory is read before the call returns, pinned memory when the copy runs.
static int launch_copy(Copy plan, const char *name, int from_host, void *stream) {
    if (is_lost()) return is_lost();
    Copy *c = malloc(sizeof *c);
    *c = plan;
    if (from_host) {
        pthread_mutex_lock(&lock);
        Block *block = find_locked(plan.from);
        int is_pinned = block && block->is_pinned;
        c->done.count = stream_count;
        for (int i = 0; i < stream_count; i++) c->done.at[i] = streams[i].done;
        pthread_mutex_unlock(&lock);
        if (is_pinned) {
            c->digest = digest(c);
        } else {
            char *owned = malloc(plan.bytes * plan.rows + 1);
            for (size_t row = 0; row < plan.rows; row++)
                memcpy(owned + row * plan.bytes, plan.from + row * plan.from_pitch, plan.bytes);
            c->from = c->owned = owned;
            c->from_pitch = plan.bytes;
        }
    }
    fake_launch(stream, name, copy, c);
    return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    return launch_copy((Copy){.to = to, .from = from, .bytes = bytes, .rows = 1}, "a copy from the host", 1, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    return launch_copy((Copy){.to = to, .from = from, .bytes = bytes, .rows = 1}, "a copy to the host", 0, stream);
}

int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    return launch_copy((Copy){.to = to, .from = from, .bytes = bytes, .rows = 1}, "a copy on the device", 0, stream);
}

typedef struct {
    size_t x, y;
    unsigned memory_type;
    char *host, *device, *array;
    size_t pitch;
} Side;

typedef struct {
    Side from, to;
    size_t bytes, rows;
} Copy2D;

int cuMemcpy2DAsync_v2(const Copy2D *plan, void *stream) {
    enum { HOST = 1, DEVICE = 2 };
    const Side *from = &plan->from, *to = &plan->to;
    if (from->memory_type != HOST && from->memory_type != DEVICE) return INVALID_VALUE;
    if (to->memory_type != HOST && to->memory_type != DEVICE) return INVALID_VALUE;
    if (from->pitch < from->x + plan->bytes || to->pitch < to->x + plan->bytes) return INVALID_VALUE;
    return launch_copy((Copy){
        .to = (to->memory_type == HOST ? to->host : to->device) + to->y * to->pitch + to->x,
        .from = (from->memory_type == HOST ? from->host : from->device) + from->y * from->pitch + from->x,
        .bytes = plan->bytes, .rows = plan->rows, .to_pitch = to->pitch, .from_pitch = from->pitch,
    }, "a copy of rows", from->memory_type == HOST, stream);
}

typedef struct {
    void (*run)(void *);
    void *argument;
} Callback;

// The host knows what came before it.
static void call_back(void *argument) {
    Callback callback = *(Callback *)argument;
    free(argument);
    pthread_mutex_lock(&lock);
    join(&host, &running->clock);
    pthread_mutex_unlock(&lock);
    callback.run(callback.argument);
}

int cuLaunchHostFunc(void *stream, void (*run)(void *), void *argument) {
    Callback *callback = malloc(sizeof *callback);
    *callback = (Callback){run, argument};
    fake_launch(stream, "a callback", call_back, callback);
    return is_lost();
}

// ----------------------------------------------------- modules and launches

typedef fake_kernel_info Kernel;
typedef int (*Build)(const char *text, char *path, size_t length, char **log);
typedef int (*RunGrid)(const Kernel *, void **arguments, const unsigned *grid, const unsigned *block,
                       unsigned shared);

typedef struct {
    char *text;
    // Of a module that is executed.
    const Kernel *kernel;
} Module;

typedef struct {
    char name[256];
    const Kernel *kernel;
    int shared_limit, is_slow;
} Function;

static Build build;
static RunGrid run_grid;

static void find_executor(void) {
    const char *names[] = {getenv("FAKE_CUDA_NVRTC"), "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !run_grid; i++) {
        void *library = names[i] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
        if (!library) continue;
        build = (Build)dlsym(library, "fake_build");
        run_grid = build ? (RunGrid)dlsym(library, "fake_run_grid") : NULL;
    }
}

static int load_executable(Module *module) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_executor);
    if (!run_grid) return INVALID_IMAGE;
    char path[4096], *log;
    int failed = build(module->text, path, sizeof path, &log);
    free(log);
    void *library = failed ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return INVALID_IMAGE;
    module->kernel = dlsym(library, "fake_kernel");
    if (!module->kernel || module->kernel->interface_version != FAKE_INTERFACE) return INVALID_IMAGE;
    *module->kernel->watch = &watch;
    return SUCCESS;
}

// The PTX version, as 87 for 8.7, that a driver of this CUDA version supports.
static int ptx_version(int driver) {
    static const int of_12[] = {80, 81, 82, 83, 84, 85, 85, 86, 87, 88};
    int minor = driver % 1000 / 10;
    if (driver >= 13000) return 90 + minor;
    return driver >= 12000 ? of_12[minor < 9 ? minor : 9] : 78;
}

// Refuses PTX that the claimed driver or device does not take.
static int check_ptx(const char *text) {
    int major, minor, target;
    char letter = 0, line[100];
    const char *version = strstr(text, ".version"), *architecture = strstr(text, ".target");
    if (!version || sscanf(version, ".version %d.%d", &major, &minor) != 2) return INVALID_PTX;
    if (!architecture || sscanf(architecture, ".target sm_%d%c", &target, &letter) < 1) return INVALID_PTX;
    const int is_exact = isalpha((unsigned char)letter) != 0;
    snprintf(line, sizeof line, "ptx %d.%d sm_%d%s", major, minor, target, is_exact ? "a" : "");
    fake_log(line);
    if (major * 10 + minor > ptx_version(number("FAKE_CUDA_DRIVER", DRIVER))) return UNSUPPORTED_PTX_VERSION;
    return (is_exact ? target == capability() : target <= capability()) ? SUCCESS : INVALID_PTX;
}

int cuModuleLoadData(Module **module, const void *image) {
    if (!fake_in_context()) return INVALID_CONTEXT;
    if (is_lost()) return is_lost();
    fake_log("cuModuleLoadData");
    Module *new = calloc(1, sizeof *new);
    new->text = strdup(image);
    int result = !strncmp(image, "//fake-cuda ", 12) ? load_executable(new) : check_ptx(image);
    if (result == SUCCESS) {
        *module = new;
    } else {
        free(new->text);
        free(new);
    }
    return result;
}

int cuModuleUnload(Module *module) {
    free(module->text);
    free(module);
    return SUCCESS;
}

// Whether the PTX has an entry of this name.
static int has_entry(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, ".entry")); at++) {
        const char *found = at + strlen(".entry");
        while (isspace((unsigned char)*found)) found++;
        char after = strncmp(found, name, length) ? 'x' : found[length];
        if (!isalnum((unsigned char)after) && after != '_' && after != '$') return 1;
    }
    return 0;
}

int cuModuleGetFunction(Function **function, Module *module, const char *name) {
    int there = module->kernel ? !strcmp(module->kernel->name, name) : has_entry(module->text, name);
    if (!there) return NOT_FOUND;
    *function = calloc(1, sizeof **function);
    snprintf((*function)->name, sizeof (*function)->name, "%s", name);
    (*function)->kernel = module->kernel;
    (*function)->shared_limit = 48 << 10;
    const char *favoured = getenv("FAKE_CUDA_FAVOUR");
    (*function)->is_slow = favoured && strstr(name, "matmul") && !strstr(module->text, favoured);
    return SUCCESS;
}

int cuFuncSetAttribute(Function *function, int attribute, int value) {
    enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
    if (is_lost()) return is_lost();
    if (attribute != MAX_DYNAMIC_SHARED_SIZE_BYTES) return SUCCESS;
    if (value < 0 || value > shared_limit()) return INVALID_VALUE;
    // The attribute only raises what every kernel has.
    function->shared_limit = value > 48 << 10 ? value : 48 << 10;
    return SUCCESS;
}

typedef struct {
    Function *function;
    unsigned grid[3], block[3], shared;
    long count;
    void **arguments;
} Launch;

static void run_launch(void *argument) {
    Launch *launch = argument;
    const char *lose_at = getenv("FAKE_CUDA_LOSE");
    if (lose_at && !strncmp(lose_at, "launch:", 7) && atol(lose_at + 7) == launch->count) lose(LAUNCH_FAILED);
    if (launch->function->is_slow) usleep(20000);
    if (launch->function->kernel && !is_lost()) {
        begin_op();
        int result = run_grid(launch->function->kernel, launch->arguments, launch->grid, launch->block,
                              launch->shared);
        end_access();
        if (result) lose(result);
    }
    free(launch->arguments);
    free(launch);
}

// The arguments, copied as the call must: their pointers, then their bytes, each at a multiple of 16.
static void **copy_arguments(const Kernel *kernel, void **arguments) {
    size_t head = (kernel->argument_count * sizeof(void *) + 15) & ~(size_t)15, bytes = head;
    for (unsigned i = 0; i < kernel->argument_count; i++) bytes += (kernel->argument_bytes[i] + 15) & ~15u;
    void **copied = malloc(bytes + 1);
    char *at = (char *)copied + head;
    for (unsigned i = 0; i < kernel->argument_count; i++) {
        memcpy(at, arguments[i], kernel->argument_bytes[i]);
        copied[i] = at;
        at += (kernel->argument_bytes[i] + 15) & ~15u;
    }
    return copied;
}

int cuLaunchKernel(Function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, Stream *stream, void **arguments,
                   void **extra) {
    static long count;
    if (is_lost()) return is_lost();
    if (!fake_in_context()) return INVALID_CONTEXT;
    if (!function || !stream) return INVALID_HANDLE;
    if (extra || !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z) return INVALID_VALUE;
    if (grid_x > 2147483647u || grid_y > 65535 || grid_z > 65535) return INVALID_VALUE;
    if (block_x > 1024 || block_y > 1024 || block_z > 64) return INVALID_VALUE;
    if (block_x * block_y * block_z > 1024 || shared > (unsigned)function->shared_limit) return INVALID_VALUE;
    const Kernel *kernel = function->kernel;
    if (kernel && block_x * block_y * block_z > kernel->max_threads) return LAUNCH_OUT_OF_RESOURCES;
    char line[400];
    snprintf(line, sizeof line, "cuLaunchKernel %s %u,%u,%u %u,%u,%u %u%s", function->name, grid_x, grid_y,
             grid_z, block_x, block_y, block_z, shared, function->is_slow ? " slow" : "");
    fake_log(line);
    Launch *launch = malloc(sizeof *launch);
    *launch = (Launch){
        .function = function, .grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z},
        .shared = shared, .arguments = kernel ? copy_arguments(kernel, arguments) : NULL,
    };
    pthread_mutex_lock(&lock);
    launch->count = ++count;
    launch_locked(stream, function->name, run_launch, launch);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

// Kernels that use tensor maps only count.
static int encode(void *map) { memset(map, 0, 128); return SUCCESS; }
int cuTensorMapEncodeTiled(void *map) { return encode(map); }
int cuTensorMapEncodeIm2col(void *map) { return encode(map); }
int cuTensorMapEncodeIm2colWide(void *map) { return encode(map); }

// ------------------------------------------------------------------ errors

static const struct {
    int error;
    const char *name, *text;
} errors[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "an error of the fake"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

int cuGetErrorName(int error, const char **name) {
    *name = "CUDA_ERROR_FAKE";
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) *name = errors[i].name;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    *text = "an error of the fake";
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error) *text = errors[i].text;
    return SUCCESS;
}
