// A runtime and a compiler that do nothing but write down how they were called, one line a call, to the file that
// STAND_IN_LOG names. STAND_IN_MODE makes them fail. Compiled with -DCUDA it goes by NVIDIA's names.
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(const char *form, ...) {
    char line[4096];
    va_list list;
    va_start(list, form);
    int length = vsnprintf(line, sizeof line - 1, form, list);
    va_end(list);
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    int file = open(getenv("STAND_IN_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0 || write(file, line, length) != length) abort();
    close(file);
}

static int mode(const char *name) {
    const char *set = getenv("STAND_IN_MODE");
    return set && strstr(set, name);
}

// How many lines of the file begin with a word, whoever wrote them.
static int said(const char *word) {
    char line[4096];
    int found = 0;
    FILE *file = fopen(getenv("STAND_IN_LOG"), "r");
    while (file && fgets(line, sizeof line, file)) found += !strncmp(line, word, strlen(word));
    if (file) fclose(file);
    return found;
}

#ifdef CUDA
#define RTC(name) nvrtc##name
#define CODE_SIZE nvrtcGetCUBINSize
#define CODE nvrtcGetCUBIN
#else
#define RTC(name) hiprtc##name
#define CODE_SIZE hiprtcGetCodeSize
#define CODE hiprtcGetCode
#endif

#ifndef ONLY_RUNTIME
struct program { char name[64]; char log[256]; char code[128]; };

int RTC(Version)(int *major, int *minor) { *major = 9; *minor = 0; return 0; }
const char *RTC(GetErrorString)(int status) { return status == 6 ? "RTC_ERROR_COMPILATION" : "RTC_ERROR_OTHER"; }
int RTC(CreateProgram)(void **out, const char *text, const char *name, int headers, const char **a, const char **b) {
    struct program *made = calloc(1, sizeof *made);
    snprintf(made->name, sizeof made->name, "%s", name);
    snprintf(made->code, sizeof made->code, "code of %s, %zu bytes", name, strlen(text));
    say("create %s headers=%d %d %d kernel=%d", name, headers, a == NULL, b == NULL, strstr(text, "KERNEL(") != NULL);
    *out = made;
    return mode("no-program") ? 3 : 0;
}
int RTC(CompileProgram)(void *program, int count, const char **options) {
    struct program *made = program;
    char all[1024] = "";
    for (int i = 0; i < count; i++) {
        strncat(all, " ", sizeof all - strlen(all) - 1);
        strncat(all, options[i], sizeof all - strlen(all) - 1);
    }
    say("compile %s%s", made->name, all);
    printf("a compiler that prints\n");
    fflush(stdout);
    if (mode("hang")) sleep(600);
    for (int i = 0; mode("together") && i < 2000 && said("compile k") < 2; i++) usleep(10000);
    if (mode("abort")) { fprintf(stderr, "LLVM ERROR: Cannot select\n"); abort(); }
    if (mode("refuse") && (!mode("but-trial") || strcmp(made->name, "trial"))) {
        strcpy(made->log, "warning: nothing\nk.cpp(3): error: no such thing\n1 error\n");
        return 6;
    }
    return 0;
}
int RTC(GetProgramLogSize)(void *program, size_t *size) { *size = strlen(((struct program *)program)->log) + 1; return 0; }
int RTC(GetProgramLog)(void *program, char *out) { strcpy(out, ((struct program *)program)->log); return 0; }
int CODE_SIZE(void *program, size_t *size) { *size = strlen(((struct program *)program)->code); return 0; }
int CODE(void *program, char *out) { memcpy(out, ((struct program *)program)->code, strlen(((struct program *)program)->code)); return 0; }
int RTC(DestroyProgram)(void **program) {
    say("destroy %s", ((struct program *)*program)->name);
    free(*program);
    *program = NULL;
    return 0;
}
#endif

#ifndef ONLY_COMPILER
static int has_device = 0;

static int version(int *out) { *out = 50221153; return 0; }
static int load(void **module, const char *image) {
    say("load %s", image);
    *module = (void *)0x10;
    static int refused = 0;
    return mode("bad-image") && !refused++ ? 200 : 0;
}
static int unload(void *module) { say("unload %p", module); return 0; }
// The handle of a kernel is its name, which says what arguments it takes: name_ppif.
static int function(void **out, void *module, const char *name) {
    say("function %s of %p", name, module);
    *out = strdup(name);
    return strcmp(name, "missing") ? 0 : 500;
}
static int launch(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **arguments, void **extra) {
    static int seen = 0;
    if (mode("no-context") && !seen++) has_device = 0;
    if (mode("no-context") && !has_device) { say("launch without a context"); return 201; }
    if (mode("lost")) return 719;
    if (mode("silent")) return 0;
    char text[1024] = "";
    const char *kinds = strrchr(kernel, '_');
    for (int i = 0; kinds && kinds[i + 1]; i++) {
        char one[64];
        switch (kinds[i + 1]) {
            case 'p': snprintf(one, sizeof one, " %#llx", *(unsigned long long *)arguments[i]); break;
            case 'i': snprintf(one, sizeof one, " %d", *(int32_t *)arguments[i]); break;
            case 'l': snprintf(one, sizeof one, " %lldl", *(long long *)arguments[i]); break;
            default: snprintf(one, sizeof one, " %gf", *(float *)arguments[i]);
        }
        strcat(text, one);
    }
    say("launch %s %u,%u,%u %u,%u,%u %u %p%s%s", (char *)kernel, gx, gy, gz, bx, by, bz, shared, stream, text,
        extra ? " extra" : "");
    return 0;
}
static int attribute(int *out, int which, void *kernel) {
    (void)kernel;
    *out = which == 4 ? 96 : which == 3 ? 16 : which == 1 ? 2048 : 0;
    return 0;
}
static int exchange(int *now) {
    static int before = 0;
    int old = before;
    say("capture mode %d", *now);
    before = *now;
    *now = old;
    return 0;
}

#ifdef CUDA
int cuDriverGetVersion(int *out) { return version(out); }
int cuModuleLoadData(void **module, const char *image) { return load(module, image); }
int cuModuleUnload(void *module) { return unload(module); }
int cuModuleGetFunction(void **out, void *module, const char *name) { return function(out, module, name); }
int cuLaunchKernel(void *k, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, void *s,
                   void **x, void **y) { return launch(k, a, b, c, d, e, f, g, s, x, y); }
int cuFuncGetAttribute(int *out, int which, void *kernel) { return attribute(out, which, kernel); }
int cuFuncSetAttribute(void *kernel, int which, int value) { say("attribute %s %d=%d", (char *)kernel, which, value); return 0; }
int cuThreadExchangeStreamCaptureMode(int *now) { return exchange(now); }
int cuGetErrorString(int status, const char **out) { *out = status == 719 ? "unspecified launch failure" : "other"; return 0; }
int cuDeviceGet(int *out, int number) { say("device %d", number); *out = number + 100; return 0; }
int cuDevicePrimaryCtxRetain(void **out, int device) { say("retain %d", device); *out = (void *)(uintptr_t)(device * 16); return 0; }
int cuCtxSetCurrent(void *context) { say("current %p", context); has_device = 1; return 0; }
#else
int hipRuntimeGetVersion(int *out) { return version(out); }
int hipModuleLoadData(void **module, const char *image) { return load(module, image); }
int hipModuleUnload(void *module) { return unload(module); }
int hipModuleGetFunction(void **out, void *module, const char *name) { return function(out, module, name); }
int hipModuleLaunchKernel(void *k, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,
                          void *s, void **x, void **y) { return launch(k, a, b, c, d, e, f, g, s, x, y); }
int hipFuncGetAttribute(int *out, int which, void *kernel) { return attribute(out, which, kernel); }
int hipThreadExchangeStreamCaptureMode(int *now) { return exchange(now); }
const char *hipGetErrorString(int status) { return status == 719 ? "unspecified launch failure" : "other"; }
int hipSetDevice(int number) { say("device %d", number); has_device = 1; return 0; }
int hipGetDeviceProperties(char *out, int number) {
    strcpy(out, "AMD Radeon RX 5600 XT");
    strcpy(out + 792, getenv("STAND_IN_GFX") ? getenv("STAND_IN_GFX") : "gfx1010:xnack-");
    return number > 7 ? 101 : 0;
}
#endif
#endif
