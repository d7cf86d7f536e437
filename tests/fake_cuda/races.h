// Finds work on memory that another stream may still use. Each op has a clock: for each stream, the
// number of the last op that is done when this one starts, whatever the timing, by order in a stream,
// by events, and by what the host has waited for. Each word of memory keeps which ops wrote and read
// it last, and an op must come after them (FastTrack: Flanagan and Freund, PLDI 2009). All host threads
// count as one: an order that only threads of the host have among themselves is taken as given.
// A race ends the process, by SIGABRT, with both ops. Part of cuda.c.

// Number 0 is before all ops.
typedef struct {
    int count;
    uint64_t at[STREAMS];
} Clock;

// An op's number in its stream, and the stream's plus one, in one word. 0 is none. What shares a word of
// memory is taken for one: ops that use different halves of it race.
enum { WORD = 4, NUMBER_BITS = 24 };

// Memory that ops can share is in one place, and no address is given twice. An allocation starts at a
// multiple of PART.
enum { PART = 64 << 10 };
static size_t arena_used;
// By part: whether a word of it has been used.
static unsigned char *is_used;

typedef struct {
    const char *name;
    char thread[16];
} Site;

// Of all ops, by stream and number.
static Site *sites[STREAMS];
static fake_watch watch;
// Held by the op that runs: a device runs one at a time.
static pthread_mutex_t device = PTHREAD_MUTEX_INITIALIZER;
static const Clock *watched_clock;

static void join(Clock *into, const Clock *from) {
    if (into->count < from->count) {
        memset(into->at + into->count, 0, (size_t)(from->count - into->count) * sizeof *into->at);
        into->count = from->count;
    }
    for (int i = 0; i < from->count; i++)
        if (into->at[i] < from->at[i]) into->at[i] = from->at[i];
}

static void set_clock(Clock *clock, int stream, uint64_t number) {
    Clock one = {.count = stream + 1};
    one.at[stream] = number;
    join(clock, &one);
}

static void note_site_locked(int stream, uint64_t number, const char *name) {
    // A power of two: the array is full.
    if (!(number & (number - 1))) {
        sites[stream] = realloc(sites[stream], number * 2 * sizeof **sites);
        if (!sites[stream]) abort();
    }
    Site *site = &sites[stream][number];
    site->name = name;
    pthread_getname_np(pthread_self(), site->thread, sizeof site->thread);
}

static uint32_t epoch(int stream, uint64_t number) {
    if (number >> NUMBER_BITS) {
        fprintf(stderr, "fake_cuda: more than 2^%d ops in a stream\n", NUMBER_BITS);
        abort();
    }
    return (uint32_t)(stream + 1) << NUMBER_BITS | (uint32_t)number;
}

static int stream_of(uint32_t op) { return (int)(op >> NUMBER_BITS) - 1; }

static unsigned number_of(uint32_t op) { return op & ((1u << NUMBER_BITS) - 1); }

// Whether an op is one of those that a clock counts. None is.
static int has(const Clock *clock, uint32_t op) {
    return !op || (stream_of(op) < clock->count && clock->at[stream_of(op)] >= number_of(op));
}

// Whether the op that runs comes after this one, or is it.
static int is_before(uint32_t other) { return has(watched_clock, other); }

static void describe(char *into, size_t length, uint32_t op) {
    const Site *site = &sites[stream_of(op)][number_of(op)];
    snprintf(into, length, "%.200s, op %u of stream %d, from thread `%s`", site->name, number_of(op), stream_of(op), site->thread);
}

// `what` says what both do, of whom `other` came first. Called without `lock`.
static void report_race(const char *address, uint32_t other, const char *what) {
    // Other threads may add sites.
    pthread_mutex_lock(&lock);
    char first[300], second[300], text[900];
    describe(first, sizeof first, other);
    describe(second, sizeof second, watch.epoch);
    int length = snprintf(text, sizeof text, "fake_cuda: race at %p: %s, and nothing orders them\n  first:  %s\n  second: %s\n",
                          (const void *)address, what, first, second);
    const char *path = getenv("FAKE_CUDA_RACES");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (write(2, text, (size_t)length) < 0 || (file >= 0 && write(file, text, (size_t)length) < 0)) abort();
    abort();
}

// Defined with the allocations: that memory is allocated and not freed when the op runs.
static void check_allocation(const char *address);

// An access to a word by the op that runs.
static void check_word(fake_cell *cell, int writes) {
    const uint32_t me = watch.epoch;
    const char *address = watch.memory + (cell - watch.cells) * WORD;
    check_allocation(address);
    is_used[(address - watch.memory) / PART] = 1;
    if (!is_before(cell->write)) report_race(address, cell->write, writes ? "both write" : "the first writes, the second reads");
    if (writes) {
        for (int i = 0; i < 2; i++)
            if (!is_before(cell->read[i])) report_race(address, cell->read[i], "the first reads, the second writes");
        *cell = (fake_cell){.write = me};
        return;
    }
    // A read that comes before this one is covered by it. Of more than two without an order, one is forgotten.
    if (!is_before(cell->read[0])) cell->read[1] = cell->read[0];
    cell->read[0] = me;
}

// An access by the op that runs, which the kernel's instrumentation does not see.
static void check_range(const void *address, size_t bytes, int writes) {
    size_t offset = (size_t)((const char *)address - watch.memory);
    if (offset >= watch.bytes) return;
    for (size_t i = offset / WORD; i <= (offset + bytes - 1) / WORD && bytes; i++) check_word(&watch.cells[i], writes);
}

static void begin_access(uint32_t op, const Clock *clock) {
    pthread_mutex_lock(&device);
    watch.epoch = op;
    watched_clock = clock;
}

static void end_access(void) { pthread_mutex_unlock(&device); }

static void *reserve_range(size_t bytes, int access) {
    void *start = mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) {
        fprintf(stderr, "fake_cuda: no address space for device memory\n");
        abort();
    }
    // A dump would walk all of it.
    madvise(start, bytes, MADV_DONTDUMP);
    return start;
}

static void reserve(void) {
    const size_t bytes = 1ull << 40;
    watch.memory = reserve_range(bytes, PROT_NONE);
    watch.cells = reserve_range(bytes / WORD * sizeof(fake_cell), PROT_READ | PROT_WRITE);
    owners = reserve_range(bytes / PART * sizeof *owners, PROT_READ | PROT_WRITE);
    is_used = reserve_range(bytes / PART, PROT_READ | PROT_WRITE);
    watch.bytes = bytes;
    watch.check = check_word;
}
