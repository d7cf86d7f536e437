// Runs the grids of compiled kernels: block after block, each thread of a block as a fiber where
// the kernel synchronizes threads. Every lane of a warp runs until it meets the others or the
// barrier; then the lanes at the first site in the source go on. That is the order in which
// hardware reconverges a structured program.
#define _GNU_SOURCE
#include "fibers.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__) || defined(FAKE_CUDA_UCONTEXT)
#include <ucontext.h>
#define USE_UCONTEXT 1
#endif

enum {
    SUCCESS = 0, OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700, LAUNCH_OUT_OF_RESOURCES = 701, LAUNCH_FAILED = 719
};
enum { STACK = 128 << 10, GUARD = 4096, SIGNAL_STACK = 64 << 10 };

typedef enum { RUNNABLE, AT_BARRIER, AT_WARP, AT_PHASE, EXITED } State;

#ifdef USE_UCONTEXT
typedef ucontext_t Context;
#else
typedef void *Context;
#endif

typedef struct Fiber {
    // First, so that the kernel's pointer is the fiber's.
    fake_thread self;
    Context context;
    struct Pool *pool;
    State state;
    unsigned site;
    enum fake_warp_operation operation;
    int argument;
    unsigned long long value, result;
    const unsigned *phase;
    unsigned old_phase;
} Fiber;

// Fibers of one block at a time. A pool serves one grid and goes back to the list of free pools.
typedef struct Pool {
    struct Pool *next;
    Context scheduler;
    // The thread that runs, of a kernel with or without fibers.
    fake_thread *current;
    const fake_kernel_info *kernel;
    void **arguments;
    unsigned created;
    unsigned long long gathered[FAKE_BLOCK_THREADS];
    Fiber fibers[FAKE_BLOCK_THREADS];
} Pool;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Pool *free_pools;

// Of the grid that the calling thread runs.
static __thread Pool *running;
static __thread sigjmp_buf abandon;
static struct sigaction handler_before[2];

#ifdef USE_UCONTEXT
static void switch_context(Context *from, Context *to) { swapcontext(from, to); }
#else
// Saves the registers that a call preserves, and continues on the other stack.
__attribute__((visibility("hidden"))) void fake_switch(void **save, void *load);
__asm__(
    ".text\n"
    ".globl fake_switch\n"
    ".hidden fake_switch\n"
    ".type fake_switch, @function\n"
    "fake_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size fake_switch, .-fake_switch\n");
static void switch_context(Context *from, Context *to) { fake_switch(from, *to); }
#endif

static void leave(Fiber *fiber) { switch_context(&fiber->context, &fiber->pool->scheduler); }

static void sync_block(fake_thread *self, unsigned site) {
    Fiber *fiber = (Fiber *)self;
    fiber->state = AT_BARRIER;
    fiber->site = site;
    leave(fiber);
}

static unsigned long long meet(fake_thread *self, unsigned site, enum fake_warp_operation operation,
                               unsigned long long value, int argument) {
    Fiber *fiber = (Fiber *)self;
    fiber->state = AT_WARP;
    fiber->site = site;
    fiber->operation = operation;
    fiber->value = value;
    fiber->argument = argument;
    leave(fiber);
    return fiber->result;
}

static int has_passed(const unsigned *phase, unsigned old) { return *phase >> 31 != old; }

static void wait_phase(fake_thread *self, const unsigned *phase, unsigned old) {
    Fiber *fiber = (Fiber *)self;
    if (has_passed(phase, old)) return;
    fiber->state = AT_PHASE;
    fiber->phase = phase;
    fiber->old_phase = old;
    leave(fiber);
}

static const fake_operations operations = {sync_block, meet, wait_phase};

// A fiber lives as long as its pool and runs one thread after the other.
static void live(Fiber *fiber) {
    for (;;) {
        fiber->pool->kernel->run_thread(&fiber->self, fiber->pool->arguments);
        fiber->state = EXITED;
        leave(fiber);
    }
}

#ifdef USE_UCONTEXT
static void start(unsigned low, unsigned high) {
    live((Fiber *)((unsigned long)low | (unsigned long)high << 32));
}
#else
// The first switch to a fiber finds its address in %rbx.
__attribute__((visibility("hidden"))) void fake_live(Fiber *fiber);
void fake_live(Fiber *fiber) { live(fiber); }
__attribute__((visibility("hidden"))) void fake_start(void);
__asm__(
    ".text\n"
    ".globl fake_start\n"
    ".hidden fake_start\n"
    ".type fake_start, @function\n"
    "fake_start:\n"
    "    movq %rbx, %rdi\n"
    "    call fake_live\n"
    "    ud2\n"
    ".size fake_start, .-fake_start\n");
#endif

static int create(Pool *pool, Fiber *fiber) {
    char *stack = mmap(NULL, STACK + GUARD, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) return 0;
    mprotect(stack, GUARD, PROT_NONE);
    fiber->pool = pool;
#ifdef USE_UCONTEXT
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack + GUARD;
    fiber->context.uc_stack.ss_size = STACK;
    fiber->context.uc_link = NULL;
    unsigned long address = (unsigned long)fiber;
    makecontext(&fiber->context, (void (*)(void))start, 2, (unsigned)address,
                (unsigned)(address >> 32));
#else
    // r15, r14, r13, r12, rbx, rbp and the return address; fake_start's stack pointer is then a
    // multiple of 16, as a call requires.
    void **top = (void **)(stack + STACK + GUARD) - 9;
    memset(top, 0, 9 * sizeof *top);
    top[4] = fiber;
    top[6] = (void *)fake_start;
    fiber->context = top;
#endif
    return 1;
}

static Pool *take_pool(void) {
    pthread_mutex_lock(&lock);
    Pool *pool = free_pools;
    if (pool) free_pools = pool->next;
    pthread_mutex_unlock(&lock);
    return pool ? pool : calloc(1, sizeof *pool);
}

static void give_pool(Pool *pool) {
    pthread_mutex_lock(&lock);
    pool->next = free_pools;
    free_pools = pool;
    pthread_mutex_unlock(&lock);
}

static void resume(Pool *pool, Fiber *fiber) {
    pool->current = &fiber->self;
    switch_context(&pool->scheduler, &fiber->context);
}

// Gives a lane that meets the lanes of `mask` its result.
static void exchange(Fiber *lanes, unsigned mask, int lane) {
    Fiber *fiber = &lanes[lane];
    unsigned ballot = 0;
    int source = lane;
    switch (fiber->operation) {
    case FAKE_SYNC: fiber->result = 0; return;
    case FAKE_ACTIVE: fiber->result = mask; return;
    case FAKE_BALLOT:
    case FAKE_ALL:
    case FAKE_ANY:
        for (int i = 0; i < FAKE_WARP; i++)
            if (mask >> i & 1 && lanes[i].value) ballot |= 1u << i;
        fiber->result = fiber->operation == FAKE_BALLOT ? ballot
                      : fiber->operation == FAKE_ALL ? ballot == mask : ballot != 0;
        return;
    case FAKE_GATHER: {
        Pool *pool = fiber->pool;
        unsigned long long *gathered = &pool->gathered[lanes - pool->fibers];
        gathered[lane] = fiber->value;
        fiber->result = (unsigned long)gathered;
        return;
    }
    case FAKE_SHUFFLE: source = fiber->argument & (FAKE_WARP - 1); break;
    case FAKE_SHUFFLE_XOR: source = lane ^ fiber->argument; break;
    case FAKE_SHUFFLE_UP: source = lane - fiber->argument; break;
    case FAKE_SHUFFLE_DOWN: source = lane + fiber->argument; break;
    }
    if (source < 0 || source >= FAKE_WARP) source = lane;
    // The value of a lane that does not take part is undefined on hardware: all ones shows it.
    fiber->result = mask >> source & 1 ? lanes[source].value : ~0ull;
}

static int can_run(const Fiber *fiber) {
    if (fiber->state == AT_PHASE) return has_passed(fiber->phase, fiber->old_phase);
    return fiber->state == RUNNABLE;
}

// Runs the lanes of a warp until none can go on, and returns whether one ran.
static int run_warp(Pool *pool, Fiber *lanes, unsigned count) {
    int has_run = 0;
    for (;;) {
        // A lane may end what another one before it waits for.
        for (int again = 1; again;) {
            again = 0;
            for (unsigned i = 0; i < count; i++) {
                if (!can_run(&lanes[i])) continue;
                lanes[i].state = RUNNABLE;
                resume(pool, &lanes[i]);
                again = has_run = 1;
            }
        }
        unsigned first = ~0u, mask = 0;
        for (unsigned i = 0; i < count; i++) {
            if (lanes[i].state != AT_WARP || lanes[i].site > first) continue;
            mask = lanes[i].site < first ? 1u << i : mask | 1u << i;
            first = lanes[i].site;
        }
        if (!mask) return has_run;
        for (unsigned i = 0; i < count; i++)
            if (mask >> i & 1) exchange(lanes, mask, (int)i);
        for (unsigned i = 0; i < count; i++)
            if (mask >> i & 1) lanes[i].state = RUNNABLE;
    }
}

// Says what is wrong, with the thread that ran last.
static void report(const Pool *pool, const char *what) {
    const fake_uint3 block = pool->current->block, thread = pool->current->thread;
    fprintf(stderr, "kernel %s: %s, in block %u,%u,%u at thread %u,%u,%u\n", pool->kernel->name, what, block.x,
            block.y, block.z, thread.x, thread.y, thread.z);
}

// Ends the grid. Its fibers are lost, and so is its pool.
static void fail(int error) { siglongjmp(abandon, error); }

static void run_block(Pool *pool, unsigned count) {
    for (;;) {
        int has_run = 0, waits = 0;
        for (unsigned i = 0; i < count; i += FAKE_WARP)
            has_run |= run_warp(pool, &pool->fibers[i], count - i < FAKE_WARP ? count - i : FAKE_WARP);
        for (unsigned i = 0; i < count; i++) waits |= pool->fibers[i].state == AT_PHASE;
        if (waits && has_run) continue;
        if (waits) {
            report(pool, "threads of a block wait at a barrier object for ever");
            fail(LAUNCH_FAILED);
        }
        // Threads that have exited count as arrived, as on hardware.
        const Fiber *first = NULL;
        for (unsigned i = 0; i < count; i++) {
            Fiber *fiber = &pool->fibers[i];
            if (fiber->state != AT_BARRIER) continue;
            if (!first) first = fiber;
            if (fiber->site != first->site) {
                report(pool, "threads of a block wait at different barriers of the source");
                fail(LAUNCH_FAILED);
            }
            fiber->state = RUNNABLE;
        }
        if (!first) return;
    }
}

// A block of a kernel that synchronizes threads.
static void run_fibers(Pool *pool, const fake_thread *model, unsigned count) {
    fake_uint3 at = {0, 0, 0};
    for (unsigned i = 0; i < count; i++) {
        Fiber *fiber = &pool->fibers[i];
        fiber->self = *model;
        fiber->self.thread = at;
        fiber->state = RUNNABLE;
        if (++at.x < model->block_size.x) continue;
        at.x = 0;
        if (++at.y < model->block_size.y) continue;
        at.y = 0;
        at.z++;
    }
    run_block(pool, count);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    Pool *pool = running;
    if (pool) {
        char text[64];
        snprintf(text, sizeof text, "illegal access to %p", info->si_addr);
        report(pool, text);
        fail(ILLEGAL_ADDRESS);
    }
    const struct sigaction *before = &handler_before[number == SIGBUS];
    if (before->sa_flags & SA_SIGINFO) {
        before->sa_sigaction(number, info, context);
    } else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    } else {
        // The instruction fails again.
        signal(number, SIG_DFL);
    }
}

static void install_handlers(void) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, &handler_before[0]);
    sigaction(SIGBUS, &action, &handler_before[1]);
}

// Lets faults be handled on another stack than the fiber's, which may be what overflows.
static void prepare_thread(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static __thread int is_prepared;
    pthread_once(&once, install_handlers);
    stack_t stack;
    if (is_prepared) return;
    is_prepared = 1;
    if (sigaltstack(NULL, &stack) == 0 && !(stack.ss_flags & SS_DISABLE)) return;
    stack = (stack_t){.ss_sp = malloc(SIGNAL_STACK), .ss_size = SIGNAL_STACK};
    sigaltstack(&stack, NULL);
}

static void run_blocks(Pool *pool, fake_thread *model, unsigned count, unsigned shared_bytes) {
    const fake_uint3 grid = model->grid;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                model->block = (fake_uint3){x, y, z};
                // Shared memory is not initialized: as NaN, a read before a write shows.
                memset(model->shared, 0xff, shared_bytes);
                if (pool->kernel->needs_fibers) run_fibers(pool, model, count);
                else pool->kernel->run_block(model, pool->arguments);
            }
}

// Returns the error that ends the grid.
static __attribute__((noinline)) int run_guarded(Pool *pool, fake_thread *model, unsigned count,
                                                 unsigned shared_bytes) {
    int error = sigsetjmp(abandon, 1);
    if (!error) run_blocks(pool, model, count, shared_bytes);
    return error;
}

int fake_run_grid(const fake_kernel_info *kernel, void **arguments, const unsigned grid[3],
                  const unsigned block[3], unsigned shared_bytes) {
    unsigned count = block[0] * block[1] * block[2];
    if (count > FAKE_BLOCK_THREADS) return LAUNCH_OUT_OF_RESOURCES;
    Pool *pool = take_pool();
    if (!pool) return OUT_OF_MEMORY;
    if (kernel->needs_fibers)
        for (; pool->created < count; pool->created++)
            if (!create(pool, &pool->fibers[pool->created])) {
                give_pool(pool);
                return OUT_OF_MEMORY;
            }
    prepare_thread();
    char *shared = aligned_alloc(1024, ((size_t)shared_bytes + 1024) & ~(size_t)1023);
    fake_thread model = {
        .block_size = {block[0], block[1], block[2]},
        .grid = {grid[0], grid[1], grid[2]},
        .shared = shared,
        .operations = &operations,
    };
    pool->kernel = kernel;
    pool->arguments = arguments;
    pool->current = &model;
    running = pool;
    int error = run_guarded(pool, &model, count, shared_bytes);
    running = NULL;
    free(shared);
    if (!error) give_pool(pool);
    return error;
}
