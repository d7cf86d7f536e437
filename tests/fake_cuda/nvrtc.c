// A libnvrtc.so for kernels that run on the CPU: rewrites CubeCL's CUDA C++ so that g++ compiles
// it after device.h, and returns the rewritten text as the program's PTX. The driver of the tests
// (cuda.c) loads such a text by this library's `fake_build` and runs it by `fake_run_grid`.
// For tests only. Compiled with fibers.c into one library. Switches, by environment:
//   FAKE_CUDA_LOG       a file that gets a line for each compilation, with a hash of the source
//   FAKE_CUDA_CACHE     where compiled kernels stay (/tmp/fake-cuda-UID)
//   FAKE_CUDA_HEADERS   where device.h and fibers.h are (the folder of this library)
//   FAKE_CUDA_CXX       the compiler (g++)
//   FAKE_CUDA_OPTIMIZE  its optimization (-O2, and none for the largest kernels)
//   FAKE_NVRTC_VERSION  12.8
#define _GNU_SOURCE
#include "fibers.h"
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SUCCESS = 0, OUT_OF_MEMORY = 1, CREATION_FAILURE = 2, INVALID_INPUT = 3, INVALID_PROGRAM = 4,
    INVALID_OPTION = 5, COMPILATION = 6
};
enum { PATH = 4096, ARGUMENTS = 32 };

#define MARK "//fake-cuda 1\n"

extern char **environ;

static const char *setting(const char *name, const char *otherwise) {
    const char *text = getenv(name);
    return text && *text ? text : otherwise;
}

// -------------------------------------------------------------------- text

typedef struct {
    char *data;
    size_t length, capacity;
} Text;

static void put(Text *text, const char *from, size_t length) {
    if (text->length + length + 1 > text->capacity) {
        text->capacity = (text->length + length + 1) * 2;
        text->data = realloc(text->data, text->capacity);
        if (!text->data) abort();
    }
    memcpy(text->data + text->length, from, length);
    text->data[text->length += length] = 0;
}

static void say(Text *text, const char *from) { put(text, from, strlen(from)); }

static char *read_file(const char *path) {
    Text text = {0};
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    say(&text, "");
    char part[8192];
    for (size_t length; (length = fread(part, 1, sizeof part, file)) > 0;) put(&text, part, length);
    fclose(file);
    return text.data;
}

static int write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    if (!file) return 0;
    size_t length = strlen(text);
    int written = fwrite(text, 1, length, file) == length;
    return fclose(file) == 0 && written;
}

static int of_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static int is_word(const char *source, const char *at, const char *word) {
    size_t length = strlen(word);
    return !strncmp(at, word, length) && !of_word(at[length]) && (at == source || !of_word(at[-1]));
}

// Past the parenthesis that closes the one at `at`, or NULL.
static const char *past_parenthesis(const char *at) {
    int depth = 0;
    for (; *at; at++) {
        if (*at == '"')
            for (at++; *at && *at != '"'; at++)
                if (*at == '\\' && at[1]) at++;
        if (*at == '(') depth++;
        if (*at == ')' && --depth == 0) return at + 1;
        if (!*at) break;
    }
    return NULL;
}

// ----------------------------------------------------------------- rewriting

// `asm volatile("add.sat.s32 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));` becomes
// `fake_ptx_add_sat_s32(result, a, b);`. Immediate operands come last.
// Returns what follows the statement's parentheses.
static const char *rewrite_asm(const char *at, Text *out) {
    const char *open = strchr(at, '(');
    const char *end = open ? past_parenthesis(open) : NULL;
    if (!end) return NULL;
    const char *quote = memchr(open, '"', (size_t)(end - open));
    if (!quote) return NULL;
    say(out, "fake_ptx_");
    const char *name = quote + 1;
    if (*name == '{') say(out, "block");
    for (; *name && !strchr(" {\\\"", *name); name++) {
        char c = of_word(*name) ? *name : '_';
        put(out, &c, 1);
    }
    say(out, "(");
    // Instructions that all lanes of a warp execute together.
    const char *sync = memmem(quote, (size_t)(name - quote), ".sync", 5);
    if (sync) say(out, "fake_self, __COUNTER__");
    // Past the instruction, which ends at a quote that no backslash precedes.
    const char *operand = quote + 1;
    while (operand < end && *operand != '"') operand += *operand == '\\' ? 2 : 1;
    operand++;
    int count = sync != NULL;
    while (operand < end) {
        if (*operand != '"') { operand++; continue; }
        const char *closing = strchr(operand + 1, '"');
        if (!closing || closing >= end) return NULL;
        const char *value = closing + 1;
        while (isspace((unsigned char)*value)) value++;
        // Without a value it is a clobber.
        if (*value != '(') { operand = value; continue; }
        const char *after = past_parenthesis(value);
        if (!after || after > end) return NULL;
        if (count++) say(out, ", ");
        put(out, value, (size_t)(after - value));
        operand = after;
    }
    // The instruction's immediate operands.
    for (const char *text = name; *text && *text != '"'; text++) {
        const char before = text[-1];
        if (!isdigit((unsigned char)*text) || of_word(before) || before == '%' || before == '.') continue;
        const char *last = text;
        while (isdigit((unsigned char)*last)) last++;
        if (count++) say(out, ", ");
        put(out, text, (size_t)(last - text));
        text = last - 1;
    }
    say(out, ")");
    return end;
}

// `extern __shared__ __align__(16) char v_1[];` becomes `char *const v_1 = fake_self->shared;`.
static const char *rewrite_shared(const char *at, Text *out) {
    const char *end = strchr(at, ';');
    const char *bracket = end ? memchr(at, '[', (size_t)(end - at)) : NULL;
    if (!bracket || !memmem(at, (size_t)(end - at), "__shared__", 10)) return NULL;
    const char *name = bracket;
    while (name > at && of_word(name[-1])) name--;
    say(out, "char *const ");
    put(out, name, (size_t)(bracket - name));
    say(out, " = fake_self->shared");
    return end;
}

// `int32_t(v_1)` becomes `fake_cast<int32_t>(v_1)`. NULL if it is no cast of a value.
static const char *rewrite_cast(const char *at, Text *out) {
    const char *type = at + (*at == 'u');
    if (strncmp(type, "int", 3)) return NULL;
    const char *end = type + 3;
    while (isdigit((unsigned char)*end)) end++;
    if (strncmp(end, "_t(", 3) || !of_word(end[3])) return NULL;
    const char *closing = end + 3;
    while (of_word(*closing)) closing++;
    if (*closing != ')') return NULL;
    say(out, "fake_cast<");
    put(out, at, (size_t)(end + 2 - at));
    say(out, ">");
    return end + 2;
}

typedef struct {
    char name[512];
    unsigned threads;
} Entry;

// From `__global__` to the parenthesis of the parameters, behind which `fake_self` comes.
static const char *rewrite_entry(const char *at, Text *out, Entry *entry) {
    const char *start = at, *open;
    entry->threads = FAKE_BLOCK_THREADS;
    for (;;) {
        open = strchr(at, '(');
        if (!open) return NULL;
        const char *name = open;
        while (name > at && isspace((unsigned char)name[-1])) name--;
        const char *end = name;
        while (name > at && of_word(name[-1])) name--;
        snprintf(entry->name, sizeof entry->name, "%.*s", (int)(end - name), name);
        int bounds = !strcmp(entry->name, "__launch_bounds__");
        if (bounds) entry->threads = (unsigned)strtoul(open + 1, NULL, 10);
        if (!bounds && strcmp(entry->name, "__cluster_dims__")) break;
        at = past_parenthesis(open);
        if (!at) return NULL;
    }
    put(out, start, (size_t)(open + 1 - start));
    say(out, "fake_thread *const fake_self");
    const char *next = open + 1;
    while (isspace((unsigned char)*next)) next++;
    if (*next != ')') say(out, ", ");
    return open + 1;
}

// The source as g++ takes it, or NULL with the reason in `log`.
static char *rewrite(const char *source, Text *log) {
    Text out = {0};
    Entry entry = {"", 0};
    say(&out, MARK);
    for (const char *at = source; *at;) {
        const char *next = at;
        if (!strncmp(at, "#include", 8) && (at == source || at[-1] == '\n')) {
            next = at + strcspn(at, "\n");
        } else if (!strncmp(at, "//", 2)) {
            next = at + strcspn(at, "\n");
        } else if (!strncmp(at, "/*", 2)) {
            const char *end = strstr(at + 2, "*/");
            next = end ? end + 2 : NULL;
        } else if (*at == '"') {
            for (next = at + 1; *next && *next != '"';) next += *next == '\\' && next[1] ? 2 : 1;
            next += *next == '"';
            put(&out, at, (size_t)(next - at));
        } else if (is_word(source, at, "asm")) {
            next = rewrite_asm(at, &out);
        } else if (is_word(source, at, "extern") && !strncmp(at, "extern __shared__", 17)) {
            next = rewrite_shared(at, &out);
        } else if (is_word(source, at, "__global__")) {
            if (*entry.name) {
                say(log, "the stand-in compiles programs of one kernel only\n");
                goto failed;
            }
            next = rewrite_entry(at, &out, &entry);
        } else {
            int begins = at == source || !of_word(at[-1]);
            next = begins && (*at == 'u' || *at == 'i') ? rewrite_cast(at, &out) : NULL;
            if (!next) {
                put(&out, at, 1);
                next = at + 1;
            }
        }
        if (!next) {
            say(log, "the stand-in cannot parse: ");
            put(log, at, strcspn(at, "\n"));
            say(log, "\n");
            goto failed;
        }
        at = next;
    }
    if (!*entry.name) {
        say(log, "the program has no kernel\n");
        goto failed;
    }
    int fibers = strstr(out.data, "__sync") || strstr(out.data, "_sync(") || strstr(out.data, "__COUNTER__")
              || strstr(out.data, "__activemask") || strstr(out.data, "cuda::barrier");
    char end[700];
    snprintf(end, sizeof end, "\nFAKE_KERNEL(%s, %u, %d)\n", entry.name, entry.threads, fibers);
    say(&out, end);
    return out.data;
failed:
    free(out.data);
    return NULL;
}

// ---------------------------------------------------------------- compiling

static void hash(uint64_t state[2], const char *text) {
    for (; *text; text++) {
        state[0] = (state[0] ^ (unsigned char)*text) * 0x100000001b3ull;
        state[1] = (state[1] + (unsigned char)*text) * 0x9e3779b97f4a7c15ull;
        state[1] ^= state[1] >> 29;
    }
    state[0] ^= 0xff;
}

static char cache_folder[PATH], header_folder[PATH];

__attribute__((constructor)) static void find_folders(void) {
    char otherwise[64];
    snprintf(otherwise, sizeof otherwise, "/tmp/fake-cuda-%u", (unsigned)getuid());
    snprintf(cache_folder, PATH, "%s", setting("FAKE_CUDA_CACHE", otherwise));
    Dl_info info;
    const char *given = setting("FAKE_CUDA_HEADERS", NULL);
    int length = 1;
    if (!given) {
        given = ".";
        if (dladdr((void *)find_folders, &info) && strrchr(info.dli_fname, '/')) {
            given = info.dli_fname;
            length = (int)(strrchr(given, '/') - given);
        }
    } else {
        length = (int)strlen(given);
    }
    snprintf(header_folder, PATH, "%.*s", length, given);
}

static int flags(char *into[ARGUMENTS]) {
    int count = 0;
    into[count++] = (char *)setting("FAKE_CUDA_CXX", "g++");
    into[count++] = (char *)setting("FAKE_CUDA_OPTIMIZE", "-O2");
    static const char *const fixed[] = {
        "-std=c++17", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=fast", "-fno-math-errno",
        "-fno-trapping-math", "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables",
        "-fvisibility=hidden", "-w", "-Wno-narrowing",
        // Calls the hooks of device.h, and not their library.
        "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", "-nodefaultlibs",
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) into[count++] = (char *)fixed[i];
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        into[count++] = "-mavx2";
        into[count++] = "-mfma";
        into[count++] = "-mf16c";
    }
#endif
    into[count] = NULL;
    return count;
}

// Runs a compiler with both outputs in `output`; whether it succeeds.
static int run(char **arguments, const char *output) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t process;
    int error = posix_spawnp(&process, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) {
        char line[PATH];
        snprintf(line, sizeof line, "%s does not start: %s\n", arguments[0], strerror(error));
        write_file(output, line);
        return 0;
    }
    int status;
    while (waitpid(process, &status, 0) < 0)
        if (errno != EINTR) return 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void join(char *into, const char *folder, const char *name, const char *ending) {
    snprintf(into, PATH, "%s/%s%s", folder, name, ending);
}

// A name for a file that this thread writes before it gets its own.
static void temporary(char *into, const char *folder, const char *name, const char *ending) {
    static atomic_int number;
    char middle[64];
    snprintf(middle, sizeof middle, ".%d-%d%s", (int)getpid(), number++, ending);
    join(into, folder, name, middle);
}

// How a source begins. A candidate of autotuning with an unrolled tile can have 8,000 lines, which
// take 12 s with -O2 and 2 s without, and it runs a few times at most. Without it, accesses by arguments
// of a call are not seen by races.h; CubeCL first loads them into variables. The pragma, unlike the
// option, leaves the precompiled header valid.
static const char *beginning(const char *text) {
    int unoptimized = strlen(text) > 32 * 1024 && !getenv("FAKE_CUDA_OPTIMIZE");
    return unoptimized ? "#pragma GCC optimize(\"O0\")\n#line 1\n" : "";
}

// Puts device.h into the cache with its precompiled form and writes its path.
static int prepare_header(const char *device, const char *fibers, uint64_t state[2], char *header) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char folder[PATH], name[64], path[PATH], compiled[PATH], output[PATH];
    snprintf(name, sizeof name, "h%016llx", (unsigned long long)state[0]);
    join(folder, cache_folder, name, "");
    join(header, folder, "device.h", "");
    join(compiled, folder, "device.h.gch", "");
    pthread_mutex_lock(&lock);
    int done = access(compiled, R_OK) == 0;
    if (!done) {
        mkdir(folder, 0700);
        join(path, folder, "fibers.h", "");
        done = (access(path, R_OK) == 0 || write_file(path, fibers))
            && (access(header, R_OK) == 0 || write_file(header, device));
        char made[PATH], *arguments[ARGUMENTS];
        temporary(made, folder, "device.h", ".tmp");
        temporary(output, folder, "device.h", ".log");
        int count = flags(arguments);
        char *more[] = {"-x", "c++-header", header, "-o", made, NULL};
        memcpy(arguments + count, more, sizeof more);
        // Without it kernels compile too, only slower.
        if (done && run(arguments, output)) rename(made, compiled);
        unlink(output);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

// Compiles a text that nvrtcGetPTX returned, unless the cache has it, and writes the path of the
// shared object. The compiler's messages go to `log`, which the caller frees.
int fake_build(const char *text, char *path, size_t length, char **log) {
    *log = NULL;
    char file[PATH];
    join(file, header_folder, "device.h", "");
    char *device = read_file(file);
    join(file, header_folder, "fibers.h", "");
    char *fibers = read_file(file);
    if (!device || !fibers) {
        if (asprintf(log, "no device.h and fibers.h in %s\n", header_folder) < 0) abort();
        free(device);
        free(fibers);
        return COMPILATION;
    }
    uint64_t state[2] = {0xcbf29ce484222325ull, 1};
    char *arguments[ARGUMENTS];
    int count = flags(arguments), result = COMPILATION;
    for (int i = 0; i < count; i++) hash(state, arguments[i]);
    hash(state, device);
    hash(state, fibers);
    char header[PATH], name[64], object[PATH], made[PATH], source[PATH], output[PATH];
    uint64_t of_header[2] = {state[0], state[1]};
    char *whole;
    if (asprintf(&whole, "%s%s", beginning(text), text) < 0) abort();
    hash(state, whole);
    snprintf(name, sizeof name, "%016llx%016llx", (unsigned long long)state[0],
             (unsigned long long)state[1]);
    join(object, cache_folder, name, ".so");
    snprintf(path, length, "%s", object);
    if (access(object, R_OK) == 0) {
        result = SUCCESS;
        goto end;
    }
    mkdir(cache_folder, 0700);
    temporary(made, cache_folder, name, ".tmp");
    temporary(source, cache_folder, name, ".cpp");
    temporary(output, cache_folder, name, ".log");
    if (!prepare_header(device, fibers, of_header, header) || !write_file(source, whole)) {
        if (asprintf(log, "cannot write to %s: %s\n", cache_folder, strerror(errno)) < 0) abort();
        goto end;
    }
    char *more[] = {"-shared", "-include", header, source, "-o", made, "-lm", "-lgcc", "-lc", NULL};
    memcpy(arguments + count, more, sizeof more);
    if (run(arguments, output) && rename(made, object) == 0) {
        char kept[PATH];
        join(kept, cache_folder, name, ".cpp");
        rename(source, kept);
        result = SUCCESS;
    } else {
        *log = read_file(output);
        unlink(source);
    }
    unlink(output);
end:
    free(whole);
    free(device);
    free(fibers);
    return result;
}

// ------------------------------------------------------------------ the API

typedef struct {
    char *source, *text;
    Text log;
} Program;

static void log_line(const char *line) {
    const char *path = getenv("FAKE_CUDA_LOG");
    if (!path) return;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0 || write(file, line, strlen(line)) < 0) abort();
    close(file);
}

int nvrtcVersion(int *major, int *minor) {
    const char *version = setting("FAKE_NVRTC_VERSION", "12.8");
    return sscanf(version, "%d.%d", major, minor) == 2 ? SUCCESS : INVALID_INPUT;
}

static const int capabilities[] = {70, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121};

int nvrtcGetNumSupportedArchs(int *count) {
    *count = sizeof capabilities / sizeof *capabilities;
    return SUCCESS;
}

int nvrtcGetSupportedArchs(int *into) {
    memcpy(into, capabilities, sizeof capabilities);
    return SUCCESS;
}

const char *nvrtcGetErrorString(int result) {
    static const char *const names[] = {
        "NVRTC_SUCCESS", "NVRTC_ERROR_OUT_OF_MEMORY", "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "NVRTC_ERROR_INVALID_INPUT", "NVRTC_ERROR_INVALID_PROGRAM", "NVRTC_ERROR_INVALID_OPTION",
        "NVRTC_ERROR_COMPILATION",
    };
    return result >= 0 && result <= COMPILATION ? names[result] : "NVRTC_ERROR unknown";
}

int nvrtcCreateProgram(Program **program, const char *source, const char *name, int header_count,
                       const char *const *header_sources, const char *const *header_names) {
    (void)name, (void)header_sources, (void)header_names;
    if (!program || !source || header_count) return INVALID_INPUT;
    *program = calloc(1, sizeof **program);
    if (!*program) return OUT_OF_MEMORY;
    (*program)->source = strdup(source);
    say(&(*program)->log, "");
    return SUCCESS;
}

int nvrtcDestroyProgram(Program **program) {
    if (!program || !*program) return INVALID_PROGRAM;
    free((*program)->source);
    free((*program)->text);
    free((*program)->log.data);
    free(*program);
    *program = NULL;
    return SUCCESS;
}

int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    if (!program) return INVALID_PROGRAM;
    uint64_t state[2] = {0xcbf29ce484222325ull, 1};
    char line[80];
    hash(state, program->source);
    snprintf(line, sizeof line, "nvrtcCompileProgram %016llx%016llx\n", (unsigned long long)state[0],
             (unsigned long long)state[1]);
    log_line(line);
    for (int i = 0; i < count; i++) {
        if (!strncmp(options[i], "-lineinfo", 9) || !strncmp(options[i], "--", 2)) continue;
        say(&program->log, "nvrtc: error: invalid option: ");
        say(&program->log, options[i]);
        say(&program->log, "\n");
        return INVALID_OPTION;
    }
    free(program->text);
    program->text = rewrite(program->source, &program->log);
    if (!program->text) return COMPILATION;
    char path[PATH], *log;
    int result = fake_build(program->text, path, sizeof path, &log);
    if (log) say(&program->log, log);
    free(log);
    if (result != SUCCESS) {
        free(program->text);
        program->text = NULL;
    }
    return result;
}

int nvrtcGetPTXSize(Program *program, size_t *size) {
    if (!program || !program->text) return INVALID_PROGRAM;
    *size = strlen(program->text) + 1;
    return SUCCESS;
}

int nvrtcGetPTX(Program *program, char *ptx) {
    if (!program || !program->text) return INVALID_PROGRAM;
    strcpy(ptx, program->text);
    return SUCCESS;
}

int nvrtcGetProgramLogSize(Program *program, size_t *size) {
    if (!program) return INVALID_PROGRAM;
    *size = program->log.length + 1;
    return SUCCESS;
}

int nvrtcGetProgramLog(Program *program, char *log) {
    if (!program) return INVALID_PROGRAM;
    strcpy(log, program->log.data);
    return SUCCESS;
}
