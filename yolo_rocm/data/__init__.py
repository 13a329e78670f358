"""Loaders for any PyTorch data set: workers, batches, and their way to the device.

What lives here: how many workers suit a machine (`worker_count`, `resources`), whether they can start and how
(`preflight`, `main_guard`, `worker_start`), what they do (`worker`, `reader`), the pool that watches and replaces them
(`pool`), loaders that follow a preset's policy (`policy`, `loader`, `create`), and reproducible batches (`seeding`,
`verify`). It imports `hardware` and `utils` and knows nothing of Ultralytics: what a kind of data set needs is in an
adapter (`reader.PlainAdapter`), given by whoever builds the loader. A newcomer changes something here to load faster,
to recognise another way in which workers fail, or to support another kind of memory.

The way of a batch, from file to device:

1. `loader` asks `batches` for the next one; `pool` sends a `Request` (indices, seed) to the worker whose turn it is.
2. In the worker, `reader` reads one sample after the other. Image i of the batch is `tensor[i]` of a `Stack`, memory
   without a name (memfd) from the worker's `Ring`; `batch_images` is where that is agreed on.
3. `transport.send` hands over the descriptor of that memory (once: later only its number), copies other large tensors
   into a second segment, and pickles the rest.
4. `pool.next` receives the batch through the worker's `Attachments`: tensors over the same memory, no copy. When the
   last of them is gone, the number goes back to the worker with the next request, and the memory is used again.
5. `batches` lines up the stages from there: `pinning.Pinner` copies batches into pinned memory in a thread, and
   `prefetch.DevicePrefetcher` on to the device, one ahead. Another stage is an iterator over batches with their traces
   that takes them from the one before; it holds on to none that it has handed out.

Where there is no memfd, torch's shared memory takes the place of 2 and 3. Without workers `reader` works in the
training process, and 3 and 4 do not happen.
"""
