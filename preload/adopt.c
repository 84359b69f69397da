#include "adopt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/options.h"

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

    if (!options->adopt || options->policy == VP_POLICY_NATIVE)
        return;
    for (size_t i = 0; i < SETTINGS; i++) {
        struct setting *setting = &settings[i];
        const char *variable = setting->variable;
        const char *value = getenv(variable);

        if (setting->needs && !agrees(setting->needs))
            continue;
        if (!value && setting->alias) {
            value = getenv(setting->alias);
            variable = setting->alias;
        }
        if (!value)
            setenv(setting->variable, setting->value, 0);
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
