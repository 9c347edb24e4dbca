/* Makes one operation on files fail, or all from that one on, or kills the process there, counted from fault_arm.

   Built and preloaded by faults.py: cc -shared -fPIC fault_injection.c -o fault_injection.so -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { OFF, ONCE, FOREVER, SHORT, KILLED };
static int mode = OFF, error_number = ENOSPC;
static long fault_at = 0, operations = 0;
static const char *failed = "";

void fault_arm(int how, long at, int number) { mode = how; fault_at = at; error_number = number; operations = 0; failed = ""; }
long fault_count(void) { return operations; }
const char *fault_name(void) { return failed; }

/* 1 if the operation that is about to happen should fail */
static int fails(const char *name) {
    if (mode == OFF) return 0;
    operations++;
    if (mode == FOREVER ? operations < fault_at : operations != fault_at) return 0;
    if (mode == KILLED) kill(getpid(), SIGKILL);
    failed = name;
    errno = error_number;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    if (fd > 2 && fails("write")) {
        if (mode == SHORT && size > 1) { return REAL(write)(fd, data, size / 2); }
        return -1;
    }
    return REAL(write)(fd, data, size);
}

#define OPENS(name)                                                            \
    int name(const char *path, int flags, ...) {                               \
        va_list rest; va_start(rest, flags);                                   \
        mode_t bits = va_arg(rest, mode_t); va_end(rest);                      \
        if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) && fails("open")) return -1; \
        return REAL(name)(path, flags, bits);                                  \
    }
OPENS(open)
OPENS(open64)

#define ONE(name, type, argument)                                              \
    int name(type argument) { return fails(#name) ? -1 : REAL(name)(argument); }
ONE(fsync, int, fd)
ONE(unlink, const char *, path)
ONE(rmdir, const char *, path)
int rename(const char *from, const char *to) { return fails("rename") ? -1 : REAL(rename)(from, to); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    return fails("rename") ? -1 : REAL(renameat2)(a, from, b, to, flags);
}
int mkdir(const char *path, mode_t bits) { return fails("mkdir") ? -1 : REAL(mkdir)(path, bits); }
int ftruncate(int fd, off_t size) { return fails("ftruncate") ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return fails("ftruncate") ? -1 : REAL(ftruncate64)(fd, size); }
int unlinkat(int at, const char *path, int flags) { return fails("unlink") ? -1 : REAL(unlinkat)(at, path, flags); }
