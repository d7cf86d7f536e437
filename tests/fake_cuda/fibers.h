// The interface between a compiled kernel and the code that runs it. C and C++ without any other
// header: kernels define the fixed-width integers themselves.
#ifndef FAKE_CUDA_FIBERS_H
#define FAKE_CUDA_FIBERS_H

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_INTERFACE = 2, FAKE_WARP = 32, FAKE_BLOCK_THREADS = 1024 };

// What the lanes of a warp exchange when they meet.
enum fake_warp_operation {
    FAKE_SYNC,      // nothing
    FAKE_ACTIVE,    // the mask of the lanes that meet
    FAKE_BALLOT,    // the mask of those whose value is not zero
    FAKE_ALL,       // whether no value is zero
    FAKE_ANY,       // whether some value is not zero
    FAKE_GATHER,    // the address of all values, which are valid until the lanes meet again
    FAKE_SHUFFLE,   // the value of lane `argument`
    FAKE_SHUFFLE_XOR,
    FAKE_SHUFFLE_UP,
    FAKE_SHUFFLE_DOWN,
};

typedef struct fake_uint3 {
    unsigned x, y, z;
} fake_uint3;

struct fake_thread;

typedef struct fake_operations {
    // __syncthreads. Sites number the calls in the order of the source.
    void (*sync_block)(struct fake_thread *, unsigned site);
    // The result for this lane.
    unsigned long long (*meet)(struct fake_thread *, unsigned site, enum fake_warp_operation,
                               unsigned long long value, int argument);
    // Waits until the highest bit of `phase` is not `old`.
    void (*wait_phase)(struct fake_thread *, const unsigned *phase, unsigned old);
} fake_operations;

// A thread of a kernel: what its built-in variables read.
typedef struct fake_thread {
    fake_uint3 thread, block, block_size, grid;
    char *shared;
    const fake_operations *operations;
} fake_thread;

// What is known of four bytes of device memory: the op that wrote them last, and those that have read
// them since. See races.h.
typedef struct fake_cell {
    unsigned write, read[2];
} fake_cell;

typedef struct fake_watch {
    char *memory;
    unsigned long bytes;
    fake_cell *cells;
    // The op that runs.
    unsigned epoch;
    void (*check)(fake_cell *, int writes);
} fake_watch;

// Each compiled kernel exports one as `fake_kernel`.
typedef struct fake_kernel_info {
    unsigned interface_version;
    const char *name;
    unsigned max_threads;   // of __launch_bounds__
    unsigned needs_fibers;  // it synchronizes threads
    unsigned argument_count;
    const unsigned *argument_bytes;
    // Runs one thread.
    void (*run_thread)(fake_thread *, void **arguments);
    // Runs all threads of a block, one after the other.
    void (*run_block)(fake_thread *, void **arguments);
    // Where accesses are reported to.
    const fake_watch **watch;
} fake_kernel_info;

// Runs a grid on the calling thread and returns a CUresult.
int fake_run_grid(const fake_kernel_info *kernel, void **arguments, const unsigned grid[3],
                  const unsigned block[3], unsigned shared_bytes);

#ifdef __cplusplus
}
#endif
#endif
