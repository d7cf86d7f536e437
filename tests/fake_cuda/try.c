// Compiles the kernels of a folder by the stand-in NVRTC, runs them by the stand-in driver, and
// compares the results with plain loops. Fails at the first difference.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
int cuStreamDestroy_v2(void *);
int cuCtxSynchronize(void);
int cuStreamWaitEvent(void *, void *, unsigned);
int cuEventDestroy_v2(void *);
int cuLaunchHostFunc(void *, void (*)(void *), void *);
int cuMemcpy2DAsync_v2(const void *, void *);
int cuMemAlloc_v2(void **, size_t);
int cuMemFree_v2(void *);
int cuMemAllocHost_v2(void **, size_t);
int cuMemcpyHtoDAsync_v2(void *, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, const void *, size_t, void *);
int cuMemAllocAsync(void **, size_t, void *);
int cuMemFreeAsync(void *, void *);
int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuFuncSetAttribute(void *, int, int);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                   void **, void **);
int cuEventCreate(void **, unsigned);
int cuEventRecord(void *, void *);
int cuEventSynchronize(void *);
int cuEventElapsedTime_v2(float *, void *, void *);
int nvrtcCreateProgram(void **, const char *, const char *, int, const char *const *, const char *const *);
int nvrtcCompileProgram(void *, int, const char *const *);
int nvrtcGetPTXSize(void *, size_t *);
int nvrtcGetPTX(void *, char *);
int nvrtcGetProgramLogSize(void *, size_t *);
int nvrtcGetProgramLog(void *, char *);
int nvrtcDestroyProgram(void **);

static void *stream;
static const char *folder;

static void require(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}
#define OK(call) require((call) == 0, #call)
#define HOLDS(condition) require(condition, #condition)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void open_device(void) {
    void *context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 1));
}

static char *compile(const char *source) {
    const char *options[] = {"--gpu-architecture=sm_75", "--include-path=/nowhere", "-lineinfo"};
    void *program;
    size_t size;
    OK(nvrtcCreateProgram(&program, source, NULL, 0, NULL, NULL));
    if (nvrtcCompileProgram(program, 3, options)) {
        OK(nvrtcGetProgramLogSize(program, &size));
        char *log = malloc(size);
        OK(nvrtcGetProgramLog(program, log));
        fprintf(stderr, "%s", log);
        free(log);
        OK(nvrtcDestroyProgram(&program));
        return NULL;
    }
    OK(nvrtcGetPTXSize(program, &size));
    char *ptx = malloc(size);
    OK(nvrtcGetPTX(program, ptx));
    OK(nvrtcDestroyProgram(&program));
    return ptx;
}

static void *load(const char *name) {
    char path[4096], entry[100];
    snprintf(path, sizeof path, "%s/%s.cu", folder, name);
    snprintf(entry, sizeof entry, "%s_kernel", name);
    FILE *file = fopen(path, "r");
    require(file != NULL, path);
    char *source = calloc(1, 1 << 20);
    HOLDS(fread(source, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    double begun = now();
    char *ptx = compile(source);
    require(ptx != NULL, path);
    void *module, *function;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&function, module, entry));
    HOLDS(cuModuleGetFunction(&(void *){0}, module, "another") == 500);
    printf("%s: compiled in %.0f ms\n", name, (now() - begun) * 1e3);
    free(source);
    free(ptx);
    return function;
}

static void *on_device(const void *data, size_t bytes) {
    void *memory;
    OK(cuMemAlloc_v2(&memory, bytes));
    if (data) OK(cuMemcpyHtoDAsync_v2(memory, data, bytes, stream));
    return memory;
}

static void from_device(void *data, void *memory, size_t bytes) {
    OK(cuMemcpyDtoHAsync_v2(data, memory, bytes, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree_v2(memory));
}

static void launch(void *function, unsigned grid_x, unsigned grid_y, unsigned block_x, unsigned block_y,
                   unsigned shared, void **arguments) {
    OK(cuFuncSetAttribute(function, 8, (int)shared));
    OK(cuLaunchKernel(function, grid_x, grid_y, 1, block_x, block_y, 1, shared, stream, arguments, NULL));
}

static void scale(void) {
    enum { COUNT = 1000 };
    struct {
        float scalars[2];
        unsigned meta[4];
    } info = {{1.5f, 0}, {COUNT / 4, 0, 0, 0}};
    static float input[COUNT], output[COUNT];
    for (int i = 0; i < COUNT; i++) input[i] = (float)i * 0.01f - 3;
    input[7] = NAN;
    input[9] = NAN;
    unsigned meta[] = {3, 7};
    void *from = on_device(input, sizeof input), *to = on_device(NULL, sizeof output);
    void *dynamic = on_device(meta, sizeof meta);
    void *function = load("scale");
    launch(function, 4, 1, 64, 1, 0, (void *[]){&from, &to, &dynamic, &info});
    // The call copies its arguments.
    memset(&info, 0xff, sizeof info);
    from_device(output, to, sizeof output);
    for (int i = 0; i < COUNT; i += 4) {
        HOLDS(fabsf(output[i] - (input[i] * 1.5f + 7)) < 1e-5f);
        HOLDS(output[i + 1] == fmaxf(input[i + 1], 1.5f));
        HOLDS(fabsf(output[i + 2] / expf(input[i + 2]) - 1) < 1e-6f);
        HOLDS(i + 3 == 7 ? isnan(output[7]) : output[i + 3] == fmaxf(input[i + 3], 1.5f));
    }
    void *arguments[] = {&from, &to, &dynamic, &info};
    HOLDS(cuLaunchKernel(function, 1, 1, 1, 65, 1, 1, 0, stream, arguments, NULL) == 701);
}

static void reduce(void) {
    enum { ROWS = 5, COLUMNS = 1000 };
    static float input[ROWS * COLUMNS];
    float output[ROWS];
    unsigned info[2] = {COLUMNS, 0};
    for (int i = 0; i < ROWS * COLUMNS; i++) input[i] = (float)(i % 17);
    void *from = on_device(input, sizeof input), *to = on_device(NULL, sizeof output);
    launch(load("reduce"), ROWS, 1, 256, 1, 1024, (void *[]){&from, &to, info});
    from_device(output, to, sizeof output);
    for (int row = 0; row < ROWS; row++) {
        float sum = 0;
        for (int i = 0; i < COLUMNS; i++) sum += input[row * COLUMNS + i];
        HOLDS(output[row] == sum);
    }
}

static void plane(void) {
    float input[64], sums[64];
    unsigned masks[256];
    for (int i = 0; i < 64; i++) input[i] = (float)i;
    void *from = on_device(input, sizeof input), *to = on_device(NULL, sizeof sums);
    void *bits = on_device(NULL, sizeof masks);
    launch(load("plane"), 1, 1, 64, 1, 0, (void *[]){&from, &to, &bits});
    from_device(sums, to, sizeof sums);
    from_device(masks, bits, sizeof masks);
    for (int i = 0; i < 64; i++) {
        unsigned lane = i % 32;
        HOLDS(sums[i] == (i < 32 ? 496 : 1520));
        HOLDS(masks[i] == 0x1f);
        // Lane 5 to 10 leave the loop after one round, 11 to 20 after two, the others after four.
        unsigned mask = lane < 5 ? 0x1f : lane <= 10 ? ~0x1fu : lane <= 20 ? ~0x7ffu
                      : lane <= 30 ? ~0x1fffffu : 1u << 31;
        HOLDS(masks[64 + i] == mask);
        HOLDS(masks[128 + i] == (lane ? lane - 1 : 0));
        HOLDS(masks[192 + i] == 1);
    }
}

static void scatter(void) {
    unsigned index[128], largest[9] = {0};
    float sums[8] = {0};
    _Float16 halves[8] = {0};
    int signed_largest[8];
    for (int i = 0; i < 8; i++) signed_largest[i] = -5;
    for (int i = 0; i < 128; i++) index[i] = (unsigned)(i * 7 % 5);
    void *at = on_device(index, sizeof index), *a = on_device(sums, sizeof sums);
    void *b = on_device(largest, sizeof largest), *c = on_device(halves, sizeof halves);
    void *d = on_device(signed_largest, sizeof signed_largest);
    launch(load("scatter"), 1, 1, 128, 1, 0, (void *[]){&at, &a, &b, &c, &d});
    from_device(sums, a, sizeof sums);
    from_device(largest, b, sizeof largest);
    from_device(halves, c, sizeof halves);
    from_device(signed_largest, d, sizeof signed_largest);
    for (unsigned i = 0; i < 8; i++) {
        int count = 0, last = i < 5 ? 0 : -5;
        for (int j = 0; j < 128; j++)
            if (index[j] == i) count++, last = j;
        HOLDS(sums[i] == (float)count * 0.5f);
        HOLDS(largest[i] == (unsigned)(last < 0 ? 0 : last));
        HOLDS((float)halves[i] == (float)count);
        HOLDS(signed_largest[i] == last);
    }
    HOLDS(largest[8] == 127);
}

static float round_bf16(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, 4);
    return x;
}

static void halves(void) {
    float input[32];
    _Float16 output[32][4], scalars[4] = {0.3f, 0, 0, 0};
    unsigned short brains[32];
    for (int i = 0; i < 32; i++) input[i] = (float)(i - 16) * 0.37f;
    void *from = on_device(input, sizeof input), *to = on_device(NULL, sizeof output);
    void *brain = on_device(NULL, sizeof brains);
    launch(load("halves"), 1, 1, 32, 1, 0, (void *[]){&from, &to, &brain, scalars});
    from_device(output, to, sizeof output);
    from_device(brains, brain, sizeof brains);
    for (int i = 0; i < 32; i++) {
        _Float16 x = (_Float16)input[i], product = (_Float16)((float)x * (float)scalars[0]);
        HOLDS(output[i][0] == product);
        HOLDS(output[i][1] == (_Float16)sqrtf(fabsf((float)x)));
        HOLDS(output[i][2] == (_Float16)((float)x * (float)scalars[0] + (float)product));
        float tenth = round_bf16(0.1f), sum = -round_bf16(round_bf16(input[i]) + tenth);
        float result = round_bf16(expf(sum < tenth ? sum : tenth)), got;
        unsigned bits = (unsigned)brains[i] << 16;
        memcpy(&got, &bits, 4);
        HOLDS(got == (result > tenth ? result : tenth));
    }
}

static void matmul(void) {
    enum { N = 256 };
    static float a[N * N], b[N * N], c[N * N];
    unsigned info[4] = {N, 0, 0, 0};
    for (int i = 0; i < N * N; i++) a[i] = (float)(i % 7) - 3, b[i] = (float)(i % 11) - 5;
    void *x = on_device(a, sizeof a), *y = on_device(b, sizeof b), *z = on_device(NULL, sizeof c);
    void *function = load("matmul"), *begin, *end;
    float milliseconds;
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventRecord(begin, stream));
    launch(function, N / 16, N / 16, 16, 16, 2048, (void *[]){&x, &y, &z, info});
    OK(cuEventRecord(end, stream));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime_v2(&milliseconds, begin, end));
    printf("matmul: %d^3 in %.1f ms, %.0f MFLOP/s\n", N, milliseconds, 2e-3 * N * N * N / milliseconds);
    from_device(c, z, sizeof c);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < N; k++) sum += a[i * N + k] * b[k * N + j];
            HOLDS(c[i * N + j] == sum);
        }
}

static void wmma(void) {
    static _Float16 a[512], b[512], transposed[512];
    static float c[512];
    for (int i = 0; i < 512; i++) a[i] = (_Float16)(i % 7 - 3), b[i] = (_Float16)(i % 5 - 2);
    void *x = on_device(a, sizeof a), *y = on_device(b, sizeof b);
    void *z = on_device(NULL, sizeof c), *t = on_device(NULL, sizeof transposed);
    launch(load("wmma"), 1, 1, 32, 2, 0, (void *[]){&x, &y, &z, &t});
    from_device(c, z, sizeof c);
    from_device(transposed, t, sizeof transposed);
    for (int plane = 0; plane < 2; plane++)
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                float sum = 0;
                // A in rows and B in columns, both of two tiles.
                for (int tile = 0; tile < 512; tile += 256)
                    for (int k = 0; k < 16; k++)
                        sum += (float)a[tile + i * 16 + k] * (float)b[tile + j * 16 + k];
                HOLDS(c[plane * 256 + i * 16 + j] == sum);
                HOLDS((float)transposed[plane * 256 + j * 16 + i] == sum);
            }
}

static void mma(void) {
    _Float16 a[16 * 16], b[16 * 8];
    float c[16 * 8];
    for (int i = 0; i < 256; i++) a[i] = (_Float16)(i % 13 - 6);
    for (int i = 0; i < 128; i++) b[i] = (_Float16)(i % 7 - 3);
    void *x = on_device(a, sizeof a), *y = on_device(b, sizeof b), *z = on_device(NULL, sizeof c);
    launch(load("mma"), 1, 1, 32, 1, 768, (void *[]){&x, &y, &z});
    from_device(c, z, sizeof c);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += (float)a[i * 16 + k] * (float)b[k * 8 + j];
            HOLDS(c[i * 8 + j] == sum);
        }
}

static void pipeline(void) {
    static float input[768], output[192];
    for (int i = 0; i < 768; i++) input[i] = (float)i;
    void *from = on_device(input, sizeof input), *to = on_device(NULL, sizeof output);
    launch(load("pipeline"), 1, 1, 64, 1, 1032, (void *[]){&from, &to});
    from_device(output, to, sizeof output);
    for (int i = 0; i < 192; i++) {
        // The third of the neighbour's four elements; the fourth was not copied.
        int part = i / 64, thread = i % 64 ^ 1;
        HOLDS(output[i] == (float)(part * 256 + 254 - thread * 4));
    }
}

static void cast(void) {
    float input[8] = {-1.5f, 2.9f, NAN, INFINITY, -INFINITY, 3e9f, 300, -70000};
    int signs[8];
    unsigned numbers[8];
    long long wide[8];
    unsigned char bytes[8];
    void *from = on_device(input, sizeof input), *a = on_device(NULL, sizeof signs);
    void *b = on_device(NULL, sizeof numbers), *c = on_device(NULL, sizeof wide);
    void *d = on_device(NULL, sizeof bytes);
    launch(load("cast"), 1, 1, 8, 1, 0, (void *[]){&from, &a, &b, &c, &d});
    from_device(signs, a, sizeof signs);
    from_device(numbers, b, sizeof numbers);
    from_device(wide, c, sizeof wide);
    from_device(bytes, d, sizeof bytes);
    const int of_32[8] = {-1, 2, 0, 2147483647, -2147483647 - 1, 2147483647, 300, -70000};
    const unsigned of_u32[8] = {0, 2, 0, ~0u, 0, 3000000000u, 300, 0};
    for (int i = 0; i < 8; i++) HOLDS(signs[i] == of_32[i] && numbers[i] == of_u32[i] && bytes[i] == i);
    HOLDS(wide[0] == -1 && wide[2] == 0 && wide[3] == 9223372036854775807ll && wide[6] == 300);
}

static void pause_stream(void *milliseconds) { usleep(*(int *)milliseconds * 1000u); }

static int gate_is_open;
static void wait_for_gate(void *argument) {
    (void)argument;
    while (!__atomic_load_n(&gate_is_open, __ATOMIC_ACQUIRE)) usleep(100);
}

static void *other_stream(void) {
    void *other;
    OK(cuStreamCreate(&other, 1));
    return other;
}

// `later` goes on when what `stream` has been given is done.
static void order(void *later) {
    void *event;
    OK(cuEventCreate(&event, 2));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(later, event, 0));
    OK(cuEventDestroy_v2(event));
}

// A kernel that reads `from` and writes `to`, in `stream`.
static void move(void *from, void *to) {
    static struct {
        float scalars[2];
        unsigned meta[4];
    } info = {{1, 0}, {1, 0, 0, 0}};
    static unsigned meta[] = {0, 0};
    void *dynamic = on_device(meta, sizeof meta);
    launch(load("scale"), 1, 1, 64, 1, 0, (void *[]){&from, &to, &dynamic, &info});
}

static void read_of_a_kernels_result(int is_ordered) {
    static char result[16];
    void *other = other_stream(), *from = on_device(result, 16), *to = on_device(NULL, 16);
    move(from, to);
    if (is_ordered) order(other);
    OK(cuMemcpyDtoHAsync_v2(result, to, 16, other));
}

static void write_of_what_a_kernel_reads(int is_ordered) {
    static char data[16];
    void *other = other_stream(), *from = on_device(data, 16), *to = on_device(NULL, 16);
    OK(cuStreamSynchronize(stream));
    move(from, to);
    // An order by the host.
    if (is_ordered) OK(cuStreamSynchronize(stream));
    OK(cuMemcpyHtoDAsync_v2(from, data, 16, other));
}

// A third stream writes what two have read, and waits for the second only by way of the first.
static void write_after_two_reads(int is_ordered) {
    static char data[16];
    void *first = other_stream(), *second = other_stream(), *memory = on_device(data, 16), *event;
    order(first);
    order(second);
    OK(cuMemcpyDtoHAsync_v2(data, memory, 16, second));
    OK(cuEventCreate(&event, 2));
    OK(cuEventRecord(event, second));
    OK(cuMemcpyDtoHAsync_v2(data, memory, 16, first));
    if (is_ordered) OK(cuStreamWaitEvent(first, event, 0));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(cuMemcpyHtoDAsync_v2(memory, data, 16, stream));
}

// Of `scatter`, whose operations are atomic.
static void read_of_atomic_sums(int is_ordered) {
    static unsigned zeros[128], result;
    void *buffers[5], *arguments[5], *other = other_stream();
    for (int i = 0; i < 5; i++) arguments[i] = &buffers[i], buffers[i] = on_device(zeros, sizeof zeros);
    OK(cuStreamSynchronize(stream));
    launch(load("scatter"), 1, 1, 128, 1, 0, arguments);
    if (is_ordered) order(other);
    OK(cuMemcpyDtoHAsync_v2(&result, buffers[1], 4, other));
}

static void release_of_memory_in_use(int is_ordered) {
    static char data[16];
    void *other = other_stream(), *memory;
    OK(cuMemAllocAsync(&memory, 16, other));
    OK(cuStreamSynchronize(other));
    move(on_device(data, 16), memory);
    if (is_ordered) order(other);
    OK(cuMemFreeAsync(memory, other));
}

static void use_of_memory_to_come(int is_ordered) {
    static char data[16];
    void *other = other_stream(), *memory;
    OK(cuMemAllocAsync(&memory, 16, stream));
    if (is_ordered) order(other);
    OK(cuMemcpyHtoDAsync_v2(memory, data, 16, other));
}

static void use_of_freed_memory(int is_ordered) {
    static char data[16];
    void *memory;
    OK(cuMemAllocAsync(&memory, 16, stream));
    if (!is_ordered) OK(cuMemFreeAsync(memory, stream));
    OK(cuMemcpyHtoDAsync_v2(memory, data, 16, stream));
}

static void use_of_memory_that_the_host_frees(int is_ordered) {
    static char data[16];
    void *memory = on_device(NULL, 16);
    if (is_ordered) OK(cuMemcpyHtoDAsync_v2(memory, data, 16, stream));
    OK(cuMemFree_v2(memory));
    if (!is_ordered) OK(cuMemcpyHtoDAsync_v2(memory, data, 16, stream));
}

// What the device itself writes there is no change.
static void change_of_pinned_memory(int is_ordered) {
    char *pinned;
    void *memory = on_device("0123456789abcdef", 16), *other = other_stream();
    OK(cuMemAllocHost_v2((void **)&pinned, 16));
    OK(cuMemcpyDtoHAsync_v2(pinned, memory, 16, stream));
    OK(cuMemcpyHtoDAsync_v2(memory, pinned, 16, stream));
    OK(cuStreamSynchronize(stream));
    // Nothing runs there before `other` is done, which nothing ends before the change.
    void *event;
    OK(cuEventCreate(&event, 2));
    OK(cuLaunchHostFunc(other, wait_for_gate, NULL));
    OK(cuEventRecord(event, other));
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(cuMemcpyHtoDAsync_v2(memory, pinned, 16, stream));
    if (!is_ordered) *pinned = 2;
    __atomic_store_n(&gate_is_open, 1, __ATOMIC_RELEASE);
}

// Runs it in processes of its own: as it should be, without what orders it, and where waits for events are left out. Either op
// may be the first.
static void races(void (*run)(int), const char *one, const char *other, int by_event) {
    for (int how = 0; how < 2 + by_event; how++) {
        char path[] = "/tmp/fake-cuda-races-XXXXXX", text[1000] = "";
        close(mkstemp(path));
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            setenv("FAKE_CUDA_RACES", path, 1);
            if (how == 2) setenv("FAKE_CUDA_UNORDERED", "1", 1);
            open_device();
            run(how != 1);
            OK(cuCtxSynchronize());
            _exit(0);
        }
        int status;
        HOLDS(waitpid(child, &status, 0) == child);
        FILE *file = fopen(path, "r");
        fread(text, 1, sizeof text - 1, file);
        fclose(file);
        unlink(path);
        if (how == 0) HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0 && !*text);
        else HOLDS(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, one) && strstr(text, other));
    }
}

// A kernel that fails loses the device: in a process of its own.
static void loses(const char *kernel, int error) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        open_device();
        void *memory = on_device(NULL, 4096);
        launch(load(kernel), 1, 1, 64, 1, 0, (void *[]){&memory});
        HOLDS(cuStreamSynchronize(stream) == error);
        HOLDS(cuMemAlloc_v2(&memory, 4) == error);
        fflush(NULL);
        _exit(0);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The device is lost at the launch that the environment names.
static void is_lost(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv("FAKE_CUDA_LOSE", "launch:2", 1);
        open_device();
        void *memory = on_device(NULL, 1024), *function = load("plane");
        void *arguments[] = {&memory, &memory, &memory};
        launch(function, 1, 1, 64, 1, 0, arguments);
        OK(cuStreamSynchronize(stream));
        launch(function, 1, 1, 64, 1, 0, arguments);
        HOLDS(cuStreamSynchronize(stream) == 719);
        fflush(NULL);
        _exit(0);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// A module of real PTX is checked, and its launches do nothing.
static void real_ptx(void) {
    void *module, *function;
    const char *fits = ".version 8.7\n.target sm_75\n.address_size 64\n.visible .entry fits(\n)\n{\n}\n";
    OK(cuModuleLoadData(&module, fits));
    OK(cuModuleGetFunction(&function, module, "fits"));
    HOLDS(cuModuleGetFunction(&function, module, "fit") == 500);
    OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
    OK(cuStreamSynchronize(stream));
    HOLDS(cuModuleLoadData(&module, ".version 8.8\n.target sm_75\n") == 222);
    HOLDS(cuModuleLoadData(&module, ".version 8.7\n.target sm_80\n") == 218);
}

// Pageable memory is read at the call; freed memory lives until the work before is done; the device is
// full at its claimed size.
static void memory(void) {
    int pageable = 1, got, pause = 50;
    void *memory;
    OK(cuMemAlloc_v2(&memory, 4));
    OK(cuLaunchHostFunc(stream, pause_stream, &pause));
    OK(cuMemcpyHtoDAsync_v2(memory, &pageable, 4, stream));
    OK(cuMemcpyDtoHAsync_v2(&got, memory, 4, stream));
    OK(cuMemFree_v2(memory));
    HOLDS(cuMemFree_v2(memory) == 1);
    pageable = 2;
    OK(cuStreamSynchronize(stream));
    HOLDS(got == 1);
    HOLDS(cuMemAlloc_v2(&memory, 1ull << 40) == 2);
    // Two rows of three bytes, out of rows of eight into rows of four.
    struct {
        size_t from_x, from_y, from_type;
        const void *from_host, *from_device, *from_array;
        size_t from_pitch, to_x, to_y, to_type;
        void *to_host, *to_device, *to_array;
        size_t to_pitch, bytes, rows;
    } plan = {
        .from_type = 1, .from_host = "abcdefghijklmnop", .from_pitch = 8, .to_type = 2, .to_pitch = 4,
        .bytes = 3, .rows = 2,
    };
    char text[8];
    plan.to_device = memory = on_device("........", 8);
    OK(cuMemcpy2DAsync_v2(&plan, stream));
    from_device(text, memory, 8);
    HOLDS(!memcmp(text, "abc.ijk.", 8));
}

// More streams than there are at a time, and one that waits for another by an event that is gone.
static void streams(void) {
    void *other, *event, *memory = on_device(NULL, 4);
    int pause = 50, got, value = 7;
    for (int i = 0; i < 400; i++) {
        OK(cuStreamCreate(&other, 1));
        OK(cuStreamDestroy_v2(other));
    }
    OK(cuStreamCreate(&other, 1));
    OK(cuEventCreate(&event, 0));
    OK(cuLaunchHostFunc(other, pause_stream, &pause));
    OK(cuMemcpyHtoDAsync_v2(memory, &value, 4, other));
    OK(cuEventRecord(event, other));
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(cuEventDestroy_v2(event));
    from_device(&got, memory, 4);
    HOLDS(got == 7);
    OK(cuStreamDestroy_v2(other));
}

int main(int count, char **arguments) {
    HOLDS(count == 2);
    folder = arguments[1];
    fprintf(stderr, "two expected failures:\n");
    loses("astray", 700);
    loses("diverge", 719);
    is_lost();
    fprintf(stderr, "races:\n");
    races(read_of_a_kernels_result, "scale_kernel", "a copy to the host", 1);
    races(write_of_what_a_kernel_reads, "scale_kernel", "a copy from the host", 0);
    races(write_after_two_reads, "a copy to the host", "a copy from the host", 1);
    races(read_of_atomic_sums, "scatter_kernel", "a copy to the host", 1);
    races(release_of_memory_in_use, "scale_kernel", "frees", 1);
    races(use_of_memory_to_come, "an allocation", "a copy from the host", 1);
    races(use_of_freed_memory, "frees", "a copy from the host", 0);
    races(use_of_memory_that_the_host_frees, "the host has freed", "a copy from the host", 0);
    races(change_of_pinned_memory, "a copy from the host", "the host changes pinned memory", 0);
    open_device();
    scale();
    reduce();
    plane();
    scatter();
    halves();
    cast();
    wmma();
    mma();
    pipeline();
    matmul();
    // Each function that CubeCL calls compiles.
    load("names");
    real_ptx();
    memory();
    streams();
    fprintf(stderr, "two expected errors:\n");
    HOLDS(!compile("extern \"C\" __global__ void __launch_bounds__(1) bad(float * const a) {\n"
                   "*a = nothing; }"));
    HOLDS(!compile("extern \"C\" __global__ void __launch_bounds__(1) bad(float * const a) {\n"
                   "asm(\"nothing.like %0, %1;\" : \"=f\"(*a) : \"f\"(*a)); }"));
    puts("all as expected");
    return 0;
}
