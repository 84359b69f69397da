#include "adopt.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include "base/log.h"
#include "base/options.h"
#include "early.h"

/*
 * What is set, if neither the variable nor its other name is. A value of the user's is kept; it agrees with
 * ours if it contains `agrees`. One that `needs` another is set only where that one agrees.
 */
static struct setting {
    const char *variable;
    const char *alias;
    const char *value;
    const char *agrees;
    const char *needs;
    const char *framework;
    const char *kept; /* the variable kept although it disagrees */
} settings[] = {
    { "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", "backend:cudaMallocAsync",
      NULL, "PyTorch" },
    { "XLA_PYTHON_CLIENT_ALLOCATOR", NULL, "cuda_async", "cuda_async", NULL, "JAX" },
    { "XLA_PYTHON_CLIENT_PREALLOCATE", NULL, "false", "false", "XLA_PYTHON_CLIENT_ALLOCATOR", "JAX" },
    { "TF_GPU_ALLOCATOR", NULL, "cuda_malloc_async", "cuda_malloc_async", NULL, "TensorFlow" },
    { "TF_FORCE_GPU_ALLOW_GROWTH", NULL, "true", "true", "TF_GPU_ALLOCATOR", "TensorFlow" },
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static bool agrees(const char *variable)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        if (strcmp(settings[i].variable, variable) == 0)
            return !settings[i].kept;
    }
    return true;
}

void vp_adopt(void)
{
    const struct vp_options *options = vp_options();
    /*
     * libc's own two. Those that the program would give us may be others: a shell keeps its variables itself,
     * and before it has begun it sees either the environment or what was set, not both.
     */
    char *(*libc_getenv)(const char *) = (__typeof__(libc_getenv))vp_real_dlsym(RTLD_NEXT, "getenv");
    int (*libc_setenv)(const char *, const char *, int) =
        (__typeof__(libc_setenv))vp_real_dlsym(RTLD_NEXT, "setenv");

    if (!libc_getenv || !libc_setenv || !options->adopt || options->policy == VP_POLICY_NATIVE)
        return;
    for (size_t i = 0; i < SETTINGS; i++) {
        struct setting *setting = &settings[i];
        const char *variable = setting->variable;
        const char *value = libc_getenv(variable);

        if (setting->needs && !agrees(setting->needs))
            continue;
        if (!value && setting->alias) {
            value = libc_getenv(setting->alias);
            variable = setting->alias;
        }
        if (!value)
            libc_setenv(setting->variable, setting->value, 0);
        else if (!strstr(value, setting->agrees))
            setting->kept = variable;
    }
}

void vp_adopt_report(void)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        const struct setting *setting = &settings[i];

        if (setting->kept)
            vp_log(VP_LOG_WARN, "%s is set and kept; with %s=%s, %s would leave its memory to vpool",
                   setting->kept, setting->variable, setting->value, setting->framework);
    }
}
