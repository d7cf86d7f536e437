// A libnvrtc that logs. It is linked against the real one, which compiles; functions that are not
// here are found there, because `dlsym` also searches a library's dependencies. Compiled with
// -DREAL="PATH of the real library". Switches, by environment:
//   NVRTC_LOG          a file that gets a line of JSON for each nvrtcCompileProgram
//   NVRTC_LOG_SOURCES  a folder that gets each source, as HASH.cu
//   NVRTC_LOG_SYNTAX   each compilation ends after the front end, without PTX
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct Source {
    void *program;
    uint64_t hash;
    char kernel[200];
    char target[16];
    struct Source *next;
} Source;

static const char ARCHITECTURE[] = "--gpu-architecture=";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Source *sources;

static void *real(const char *name) {
    static void *library;
    pthread_mutex_lock(&lock);
    if (!library) library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    pthread_mutex_unlock(&lock);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) {
        fprintf(stderr, "nvrtc_log: %s of %s: %s\n", name, REAL, dlerror());
        abort();
    }
    return function;
}

static uint64_t hash_of(const char *text) {
    uint64_t hash = 14695981039346656037ull;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash;
}

static const char *skip_space(const char *at) {
    while (isspace((unsigned char)*at)) at++;
    return at;
}

// The name of the first `__global__` function: the first identifier that a parameter list follows,
// attributes such as `__launch_bounds__(256)` left out.
static void find_kernel(const char *source, char *name, size_t size) {
    *name = 0;
    const char *at = strstr(source, "__global__");
    if (!at) return;
    at += strlen("__global__");
    while (*at) {
        if (!isalpha((unsigned char)*at) && *at != '_') {
            at++;
            continue;
        }
        const char *begins = at;
        while (isalnum((unsigned char)*at) || *at == '_') at++;
        size_t length = (size_t)(at - begins);
        const char *next = skip_space(at);
        if (*next != '(') continue;
        if (length < 2 || strncmp(begins, "__", 2)) {
            snprintf(name, size, "%.*s", (int)length, begins);
            return;
        }
        int depth = 0;
        for (at = next; *at; at++) {
            depth += (*at == '(') - (*at == ')');
            if (depth == 0) break;
        }
    }
}

static void keep_source(const char *source, uint64_t hash) {
    const char *folder = getenv("NVRTC_LOG_SOURCES");
    if (!folder) return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%016llx.cu", folder, (unsigned long long)hash);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    // It is there, or the folder is full: compiling goes on.
    if (file < 0) return;
    size_t length = strlen(source);
    for (ssize_t wrote; length > 0; source += wrote, length -= (size_t)wrote)
        if ((wrote = write(file, source, length)) <= 0) break;
    close(file);
}

static void put_string(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') fprintf(out, "\\%c", c);
        else if (c < 0x20 || c > 0x7e) fprintf(out, "\\u%04x", c);
        else fputc(c, out);
    }
    fputc('"', out);
}

static void append(const char *line, size_t length) {
    const char *path = getenv("NVRTC_LOG");
    if (!path) return;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    // One write: lines of processes and threads don't mix.
    if (file < 0 || write(file, line, length) != (ssize_t)length) {
        perror("nvrtc_log: NVRTC_LOG");
        abort();
    }
    close(file);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int nvrtcCreateProgram(void **program, const char *source, const char *name, int count,
                       const char *const *headers, const char *const *names) {
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *) = real("nvrtcCreateProgram");
    int result = create(program, source, name, count, headers, names);
    if (result) return result;
    Source *new = calloc(1, sizeof *new);
    if (!new) abort();
    new->program = *program;
    new->hash = hash_of(source);
    find_kernel(source, new->kernel, sizeof new->kernel);
    keep_source(source, new->hash);
    pthread_mutex_lock(&lock);
    new->next = sources;
    sources = new;
    pthread_mutex_unlock(&lock);
    return result;
}

int nvrtcDestroyProgram(void **program) {
    pthread_mutex_lock(&lock);
    for (Source **at = &sources; *at; at = &(*at)->next)
        if ((*at)->program == *program) {
            Source *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
    int (*destroy)(void **) = real("nvrtcDestroyProgram");
    return destroy(program);
}

static size_t size_of(void *program, const char *function) {
    int (*get)(void *, size_t *) = real(function);
    size_t size = 0;
    return get(program, &size) ? 0 : size;
}

static char *log_of(void *program) {
    int (*get)(void *, char *) = real("nvrtcGetProgramLog");
    char *text = calloc(1, size_of(program, "nvrtcGetProgramLogSize") + 1);
    if (!text || get(program, text)) abort();
    return text;
}

static Source *find(void *program) {
    pthread_mutex_lock(&lock);
    Source *at = sources;
    while (at && at->program != program) at = at->next;
    pthread_mutex_unlock(&lock);
    return at;
}

static int only_syntax(void) { return getenv("NVRTC_LOG_SYNTAX") != NULL; }

// The front end makes no PTX: as much as a driver wants to see whose launches do nothing.
static int ptx_of(void *program, char *into, size_t size) {
    const Source *found = find(program);
    return snprintf(into, size, ".version 7.0\n.target %s\n.entry %s", found->target, found->kernel);
}

int nvrtcGetPTXSize(void *program, size_t *size) {
    int (*get)(void *, size_t *) = real("nvrtcGetPTXSize");
    if (!only_syntax()) return get(program, size);
    *size = (size_t)ptx_of(program, NULL, 0) + 1;
    return 0;
}

int nvrtcGetPTX(void *program, char *ptx) {
    int (*get)(void *, char *) = real("nvrtcGetPTX");
    if (!only_syntax()) return get(program, ptx);
    ptx_of(program, ptx, (size_t)ptx_of(program, NULL, 0) + 1);
    return 0;
}

int nvrtcCompileProgram(void *program, int count, const char *const *options) {
    int (*compile)(void *, int, const char *const *) = real("nvrtcCompileProgram");
    const char *given[count + 1];
    for (int i = 0; i < count; i++) given[i] = options[i];
    options = given;
    if (only_syntax()) given[count++] = "--fdevice-syntax-only";
    Source *found = find(program);
    for (int i = 0; i < count; i++)
        if (!strncmp(options[i], ARCHITECTURE, strlen(ARCHITECTURE)))
            snprintf(found->target, sizeof found->target, "%s", options[i] + strlen(ARCHITECTURE));
    double began = seconds();
    int result = compile(program, count, options);
    double took = seconds() - began;

    char *line;
    size_t length;
    FILE *out = open_memstream(&line, &length);
    if (!out) abort();
    fprintf(out, "{\"kernel\": ");
    put_string(out, found->kernel);
    fprintf(out, ", \"source\": \"%016llx\", \"options\": [", (unsigned long long)found->hash);
    for (int i = 0; i < count; i++) {
        if (i) fprintf(out, ", ");
        put_string(out, options[i]);
    }
    fprintf(out, "], \"seconds\": %.4f, \"result\": %d, \"pid\": %d", took, result, (int)getpid());
    if (result == 0) {
        fprintf(out, ", \"ptx\": %zu, \"cubin\": %zu", size_of(program, "nvrtcGetPTXSize"),
                size_of(program, "nvrtcGetCUBINSize"));
    } else {
        char *text = log_of(program);
        fprintf(out, ", \"log\": ");
        put_string(out, text);
        free(text);
    }
    fprintf(out, "}\n");
    fclose(out);
    append(line, length);
    free(line);
    return result;
}
