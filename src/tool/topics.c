/* The topics of `vpool help`, which are the chapters of libvpool(7), too. Lines of at most 78 characters. */
#include "tool/help.h"

const struct vp_help_topic vp_help_topics[] = {
    { "start", "Starting a program",
      "  vpool run -- python train.py\n"
      "  LD_PRELOAD=/path/to/libvpool.so python train.py\n"
      "\n"
      "do the same; the first prints at the end what the library did. Nothing needs to\n"
      "be rebuilt. Child processes are reached, too: the variables are inherited.\n"
      "\n"
      "  vpool doctor                      is all there that is needed?\n"
      "  vpool doctor -- python train.py   does the program get its memory from us?\n"
      "  vpool top                         what do my programs hold now?\n"
      "  vpool run --sim=1G -- PROGRAM     without a GPU; copies and memsets only\n" },
    { "differences", "What differs from CUDA, on purpose",
      "cudaFree does not stop the host. CUDA's own waits until the device is idle, and\n"
      "some programs lean on that without knowing. VPOOL_SYNC_FREE=1 brings the stop\n"
      "back; CUDA_LAUNCH_BLOCKING=1 implies it.\n"
      "\n"
      "Synchronous allocation and release during a stream capture are served. CUDA\n"
      "refuses them there and destroys the capture.\n"
      "\n"
      "Reused memory is not zero. CUDA does not promise zeros either, but its fresh\n"
      "memory happens to be.\n" },
    { "waits", "When a stream waits for memory",
      "Memory freed on one stream may be wanted on another while work that uses it is\n"
      "still queued. The second stream can be made to wait on the GPU until the first\n"
      "has passed the free; the host does not wait. VPOOL_WAIT says when:\n"
      "\n"
      "  early   before the pool takes more of the device: least memory\n"
      "  late    only when the device has no more, as CUDA's own pools do\n"
      "  never   other memory is taken instead\n"
      "  auto    early, until the process shows that something outside can hold its\n"
      "          streams up; from then on late\n"
      "\n"
      "What shows it: an NCCL communicator of more than one rank; memory, events or\n"
      "semaphores of others opened or imported; a stream that waits for a value in\n"
      "memory; a host function in a graph.\n"
      "\n"
      "A wait aims at the free itself, never at later work. It is safe while the work\n"
      "queued before a free can always finish without what is queued after it. A\n"
      "receive posted ahead of the send that answers it is not like that: use late.\n"
      "\n"
      "The host waits in two cases: for an earlier cudaFree, where CUDA would have\n"
      "waited already; and before out of memory is reported, for at most 5 seconds,\n"
      "for pending work that will free some. The statistics count both.\n" },
    { "frameworks", "PyTorch, JAX and others",
      "Frameworks keep freed memory to themselves. On load the library sets the\n"
      "variables by which they leave it to CUDA, where these are unset: PyTorch's\n"
      "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync, JAX's\n"
      "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async and XLA_PYTHON_CLIENT_PREALLOCATE=false,\n"
      "TensorFlow's TF_GPU_ALLOCATOR=cuda_malloc_async and\n"
      "TF_FORCE_GPU_ALLOW_GROWTH=true. A value of yours is kept; if it disagrees, one\n"
      "line says so. VPOOL_ADOPT=0 sets nothing.\n"
      "\n"
      "CuPy's pool lies on top; cupy.cuda.set_allocator(None) takes it away. numba's\n"
      "allocations arrive as they are.\n"
      "\n"
      "With cudaMallocAsync PyTorch refuses to share CUDA tensors by\n"
      "torch.multiprocessing, memory history and snapshots, torch.cuda.MemPool and the\n"
      "graph trees of torch.compile. VPOOL_ADOPT=0 keeps its own cache, which refuses\n"
      "none of them, and holds what it holds without us.\n" },
    { "policies", "Who decides which bytes an allocation gets",
      "VPOOL_POLICY chooses among them, to compare (see vpool replay --help, too):\n"
      "\n"
      "  vpool    best fit at 512 bytes; ranges stitched of free chunks and kept\n"
      "  vpmm     VPMM as published: whole pages, remapping the oldest free ones\n"
      "  bfc      PyTorch's caching allocator\n"
      "  es       PyTorch's expandable segments\n"
      "  gmlake   GMLake: stitching of blocks from 512 MiB on (VPOOL_GMLAKE_FRAGMENT)\n"
      "  native   CUDA itself; calls are counted, nothing else\n" },
    { "statistics", "What the library did",
      "VPOOL_STATS=1 prints a summary on stderr when the program exits, and\n"
      "VPOOL_STATS=FILE writes a JSON object (%p in the name is the process id). Live\n"
      "is what the program asked for, held what the pool has of the device; efficiency\n"
      "is one peak by the other. Doors are the calls by which allocations came, passed\n"
      "on those that went on to CUDA. A program that ends by a signal or by _exit\n"
      "writes nothing.\n"
      "\n"
      "VPOOL_TRACE=FILE records every allocation and free served; vpool replay reads\n"
      "it. vpool top shows the figures while the program runs.\n" },
    { "dumps", "What the pool looked like at one moment",
      "VPOOL_DUMP lists when: exit, oom, signal, every:SECONDS. VPOOL_DUMP_FILE names\n"
      "the file (%p is the process id, %n the number of the dump; .json makes it JSON).\n"
      "A dump has the totals, every region in order of addresses with its state, size,\n"
      "stream and age, the chunks by size, and what stands in the way of a large\n"
      "request. The signal is SIGUSR2, unless VPOOL_DUMP_SIGNAL names another or the\n"
      "program has a handler of its own; vpool top sends it by the key d.\n" },
    { "page", "What vpool top reads",
      "A process that has allocated publishes one page of figures, as\n"
      "/dev/shm/vpool-UID-PID, readable by its user alone. It is removed when the\n"
      "program exits; what a killed one leaves, the next vpool top removes. The fast\n"
      "path writes nothing there: what a stream's lane serves is counted when the\n"
      "process next takes the library's lock, at the latest after some thousand\n"
      "allocations. VPOOL_PAGE=0 publishes nothing.\n" },
    { "simulator", "Without a GPU",
      "vpool run --sim runs a program on a simulated driver (libcuda.so.1 and\n"
      "libcudart.so.13), which does copies and memsets and refuses what a real driver\n"
      "refuses, but runs no kernels. VPOOL_SIM sets it up: keys and values with commas\n"
      "between.\n"
      "\n"
      "  capacity=256M   bytes of a device       devices=1   how many\n"
      "  lazy=50         per cent of the queued work that waits to be waited for\n"
      "  fail=CALL:N     the Nth call of that name fails\n"
      "\n"
      "Its times say nothing about a GPU.\n" },
    { "why-not", "Why is my program not using it?",
      "vpool doctor -- PROGRAM tells most of it. The usual reasons:\n"
      "\n"
      "The program is linked statically to libc, runs with raised privileges, or was\n"
      "started by something that drops LD_PRELOAD: sudo, ssh, a container, a job\n"
      "scheduler. Then the library is not in it at all.\n"
      "\n"
      "A framework keeps its own cache on top, because a variable says so (see vpool\n"
      "help frameworks). Then the library serves few, large allocations.\n"
      "\n"
      "It maps memory itself (cuMemCreate: PyTorch's expandable segments, JAX's default\n"
      "allocator), or uses managed memory, arrays or a memory pool made for export.\n"
      "Those stay CUDA's.\n"
      "\n"
      "The device has no virtual memory management, or the driver is older than 12.0.\n"
      "Then everything goes on to CUDA, which is said once.\n"
      "\n"
      "docs/why-not.md has more, and how to see each.\n" },
};
const size_t vp_help_topic_count = sizeof vp_help_topics / sizeof *vp_help_topics;
