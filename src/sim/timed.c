/*
 * The modelled clock: what the device does takes time then, and the same time on every machine.
 *
 * When an op is queued it is given the time at which it will be over: when its stream and its dependencies are, and not
 * before now; a kernel adds its length. It is done when the clock has come there (queue.c). Driver calls move the clock,
 * and waits of the host, and whoever says so.
 */
#include "sim_private.h"
#include "sim.h"

SIM_EXPORT void vp_sim_time_start(void)
{
    pthread_mutex_lock(&sim.lock);
    sim.timed = true;
    sim.clock_ns = sim.next_ns = sim.idle_ns = 0;
    pthread_mutex_unlock(&sim.lock);
}

SIM_EXPORT uint64_t vp_sim_now(void)
{
    pthread_mutex_lock(&sim.lock);
    uint64_t now = sim.clock_ns;
    pthread_mutex_unlock(&sim.lock);
    return now;
}

SIM_EXPORT void vp_sim_advance(uint64_t nanoseconds)
{
    pthread_mutex_lock(&sim.lock);
    sim.clock_ns += nanoseconds;
    if (sim.timed)
        sim_progress_due();
    pthread_mutex_unlock(&sim.lock);
}

SIM_EXPORT uint64_t vp_sim_next_completion(void)
{
    pthread_mutex_lock(&sim.lock);
    if (sim.timed)
        sim_progress_due();
    uint64_t next = sim.timed ? sim_next_due() : UINT64_MAX;
    pthread_mutex_unlock(&sim.lock);
    return next;
}

SIM_EXPORT uint64_t vp_sim_idle_at(void)
{
    pthread_mutex_lock(&sim.lock);
    uint64_t idle = sim.idle_ns > sim.clock_ns ? sim.idle_ns : sim.clock_ns;
    pthread_mutex_unlock(&sim.lock);
    return idle;
}

SIM_EXPORT CUresult vp_sim_kernel(CUstream handle, uint64_t nanoseconds)
{
    struct sim_stream *stream;
    pthread_mutex_lock(&sim.lock);
    CUresult result = sim.timed && sim.initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    if (!result) {
        sim_self();
        sim_progress_due();
        result = sim_stream_for_work(handle, &stream);
    }
    if (!result && stream->capture)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (!result)
        sim_queue_kernel(stream, nanoseconds);
    pthread_mutex_unlock(&sim.lock);
    return result;
}
