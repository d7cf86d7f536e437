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
// CUDA_VISIBLE_DEVICES, as numbers, says which of them a process sees, in its order.
// Compiled with -DWITHOUT_CONTEXT_EVENTS it is a driver from before CUDA 12.5.
#define _GNU_SOURCE
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

typedef struct Op {
    void (*run)(void *);
    void *argument;
    struct Op *next;
} Op;

// `launched` and `done` go on when another stream takes the slot of one that has ended: places in its
// queue stay valid.
typedef struct {
    Op *first, *last;
    uint64_t launched, done;
    int ends, is_free;
    pthread_cond_t work;
} Stream;

typedef struct {
    int count;
    int stream[STREAMS];
    uint64_t at[STREAMS];
} Places;

// Destroyed when neither its owner nor an op in a queue refers to it.
typedef struct {
    Places places;
    int references, has_time;
    struct timespec time;
} Event;

// An allocation: of device memory, or of pinned host memory.
typedef struct Block {
    char *start;
    size_t bytes, mapped;
    int is_pinned, is_freed;
    // The work that a freed one outlives.
    Places last_use;
    struct Block *next;
} Block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static Stream streams[STREAMS];
static int stream_count;
static int retained;
static char primary;
// What every stream to come has to wait for.
static Places barrier;
static Block *blocks;
static size_t device_bytes;
// The error that every call returns once the device is lost.
static int lost;
static __thread void *current;

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
        op->run(op->argument);
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

static void launch_locked(Stream *stream, void (*run)(void *), void *argument) {
    Op *op = malloc(sizeof *op);
    *op = (Op){run, argument, NULL};
    if (stream->last) stream->last->next = op; else stream->first = op;
    stream->last = op;
    stream->launched++;
    pthread_cond_signal(&stream->work);
}

// For the fake NCCL, which launches from threads of its own.
void fake_launch(void *stream, void (*run)(void *), void *argument) {
    pthread_mutex_lock(&lock);
    launch_locked(stream, run, argument);
    pthread_mutex_unlock(&lock);
}

static int come(const Places *places) {
    for (int i = 0; i < places->count; i++)
        if (streams[places->stream[i]].done < places->at[i]) return 0;
    return 1;
}

static void wait_for(void *argument) {
    pthread_mutex_lock(&lock);
    while (!come(argument)) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    free(argument);
}

static void wait_locked(Stream *stream, const Places *places) {
    Places *copy = malloc(sizeof *copy);
    *copy = *places;
    launch_locked(stream, wait_for, copy);
}

static void record_all(Places *places) {
    places->count = stream_count;
    for (int i = 0; i < stream_count; i++) {
        places->stream[i] = i;
        places->at[i] = streams[i].launched;
    }
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
    Places all;
    pthread_mutex_lock(&lock);
    record_all(&all);
    while (!come(&all)) pthread_cond_wait(&change, &lock);
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
    uint64_t until = stream->launched;
    while (stream->done < until) pthread_cond_wait(&change, &lock);
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
        launch_locked(stream, take_time, event);
    }
    event->places.count = 1;
    event->places.stream[0] = (int)(stream - streams);
    event->places.at[0] = stream->launched;
    pthread_mutex_unlock(&lock);
    return is_lost();
}

int cuEventQuery(Event *event) {
    pthread_mutex_lock(&lock);
    int result = come(&event->places) ? is_lost() : NOT_READY;
    pthread_mutex_unlock(&lock);
    return result;
}

int cuEventSynchronize(Event *event) {
    pthread_mutex_lock(&lock);
    // Its owner may record it again meanwhile.
    Places places = event->places;
    while (!come(&places)) pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    return is_lost();
}

static int elapsed(float *milliseconds, Event *start, Event *end) {
    if (!start->has_time || !end->has_time) return INVALID_HANDLE;
    if (!start->places.count || !end->places.count) return INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    int result = come(&start->places) && come(&end->places) ? is_lost() : NOT_READY;
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
    wait_locked(stream, &event->places);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

#ifndef WITHOUT_CONTEXT_EVENTS
int cuCtxRecordEvent(void *context, Event *event) {
    if (context != &primary) return INVALID_CONTEXT;
    fake_log("cuCtxRecordEvent");
    pthread_mutex_lock(&lock);
    record_all(&event->places);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int cuCtxWaitEvent(void *context, Event *event) {
    if (context != &primary) return INVALID_CONTEXT;
    fake_log("cuCtxWaitEvent");
    pthread_mutex_lock(&lock);
    for (int i = 0; i < stream_count; i++)
        if (!streams[i].ends) wait_locked(&streams[i], &event->places);
    barrier = event->places;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
#endif

// ------------------------------------------------------------------ memory

static void remove_locked(Block **at) {
    Block *block = *at;
    *at = block->next;
    if (!block->is_pinned) device_bytes -= block->bytes;
    munmap(block->start, block->mapped);
    free(block);
}

// Unmaps freed memory that no work can use any more.
static void reclaim_locked(void) {
    for (Block **at = &blocks; *at;)
        if ((*at)->is_freed && come(&(*at)->last_use)) remove_locked(at); else at = &(*at)->next;
}

// The allocation that `address` lies in.
static Block *find_locked(const void *address) {
    const char *at = address;
    for (Block *block = blocks; block; block = block->next)
        if (at >= block->start && at < block->start + block->bytes) return block;
    return NULL;
}

// Each allocation ends in a page that cannot be accessed.
static int allocate(void **address, size_t bytes, int is_pinned) {
    if (is_lost()) return is_lost();
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
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED) {
        pthread_mutex_unlock(&lock);
        return OUT_OF_MEMORY;
    }
    mprotect(start + mapped - page, page, PROT_NONE);
    Block *block = calloc(1, sizeof *block);
    block->start = start;
    block->bytes = bytes;
    block->mapped = mapped;
    block->is_pinned = is_pinned;
    block->next = blocks;
    blocks = block;
    if (!is_pinned) device_bytes += bytes;
    pthread_mutex_unlock(&lock);
    int fill = number("FAKE_CUDA_FILL", 0);
    if (fill && !is_pinned) memset(start, fill, bytes);
    *address = start;
    return SUCCESS;
}

// The real driver waits for all work. This one lets the memory live until then.
static int release(void *address) {
    if (!address) return SUCCESS;
    pthread_mutex_lock(&lock);
    Block *block = blocks;
    while (block && (block->start != address || block->is_freed)) block = block->next;
    if (block) {
        block->is_freed = 1;
        record_all(&block->last_use);
    }
    reclaim_locked();
    pthread_mutex_unlock(&lock);
    return block ? is_lost() : INVALID_VALUE;
}

int cuMemAlloc_v2(void **address, size_t bytes) { return allocate(address, bytes, 0); }
int cuMemFree_v2(void *address) { return release(address); }
int cuMemAllocHost_v2(void **address, size_t bytes) { return allocate(address, bytes, 1); }
int cuMemFreeHost(void *address) { return release(address); }

int cuMemAllocAsync(void **address, size_t bytes, Stream *stream) {
    (void)stream;
    return allocate(address, bytes, 0);
}

static void free_in_stream(void *address) {
    pthread_mutex_lock(&lock);
    Block *block = find_locked(address);
    if (block) block->is_freed = 1;
    reclaim_locked();
    pthread_mutex_unlock(&lock);
}

int cuMemFreeAsync(void *address, Stream *stream) {
    pthread_mutex_lock(&lock);
    launch_locked(stream, free_in_stream, address);
    pthread_mutex_unlock(&lock);
    return is_lost();
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
} Copy;

static void copy(void *argument) {
    Copy *c = argument;
    for (size_t row = 0; row < c->rows && !is_lost(); row++)
        memmove(c->to + row * c->to_pitch, c->from + row * c->from_pitch, c->bytes);
    free(c->owned);
    free(c);
}

// Pageable memory is read before the call returns, pinned memory when the copy runs.
static int launch_copy(Copy plan, int from_host, void *stream) {
    if (is_lost()) return is_lost();
    Copy *c = malloc(sizeof *c);
    *c = plan;
    if (from_host) {
        pthread_mutex_lock(&lock);
        Block *block = find_locked(plan.from);
        int is_pinned = block && block->is_pinned;
        pthread_mutex_unlock(&lock);
        if (!is_pinned) {
            char *owned = malloc(plan.bytes * plan.rows + 1);
            for (size_t row = 0; row < plan.rows; row++)
                memcpy(owned + row * plan.bytes, plan.from + row * plan.from_pitch, plan.bytes);
            c->from = c->owned = owned;
            c->from_pitch = plan.bytes;
        }
    }
    fake_launch(stream, copy, c);
    return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    return launch_copy((Copy){.to = to, .from = from, .bytes = bytes, .rows = 1}, 1, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    return launch_copy((Copy){.to = to, .from = from, .bytes = bytes, .rows = 1}, 0, stream);
}

int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream) {
    return launch_copy((Copy){.to = to, .from = from, .bytes = bytes, .rows = 1}, 0, stream);
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
    }, from->memory_type == HOST, stream);
}

int cuLaunchHostFunc(void *stream, void (*run)(void *), void *argument) {
    fake_launch(stream, run, argument);
    return is_lost();
}

// ----------------------------------------------------- modules and launches

// As in fibers.h, which this file cannot include: tests compile it alone.
typedef struct {
    unsigned interface_version;
    const char *name;
    unsigned max_threads, needs_fibers, argument_count;
    const unsigned *argument_bytes;
    void (*run_thread)(void *, void **);
    void (*run_block)(void *, void **);
} Kernel;

enum { INTERFACE = 1 };

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
    int shared_limit;
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
    return module->kernel && module->kernel->interface_version == INTERFACE ? SUCCESS : INVALID_IMAGE;
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
    if (launch->function->kernel && !is_lost()) {
        int result = run_grid(launch->function->kernel, launch->arguments, launch->grid, launch->block,
                              launch->shared);
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
    snprintf(line, sizeof line, "cuLaunchKernel %s %u,%u,%u %u,%u,%u %u", function->name, grid_x, grid_y,
             grid_z, block_x, block_y, block_z, shared);
    fake_log(line);
    Launch *launch = malloc(sizeof *launch);
    *launch = (Launch){
        .function = function, .grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z},
        .shared = shared, .arguments = kernel ? copy_arguments(kernel, arguments) : NULL,
    };
    pthread_mutex_lock(&lock);
    launch->count = ++count;
    launch_locked(stream, run_launch, launch);
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
