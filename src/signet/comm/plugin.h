// What the program asks of a message library that it loads when it was started by a launcher. A plugin is a
// shared library that exports `signet_messages` (a MessageLibrary). C types alone cross the border, so that a
// plugin built by another compiler serves as well; an int result is 0 or an error that message() puts into
// words.
#pragma once

#include <cstdint>

extern "C" {

struct SignetMessages {
  int version;       // kSignetMessagesVersion; anything else is refused
  const char* name;  // for people: "Open MPI 4.1.4"

  int (*open)(int* rank, int* size);
  // A message to or from another rank; `request` is done once the memory may be used again. At most
  // kSignetMessageBytes at a time; messages between two ranks arrive in order.
  int (*send)(const void* data, int64_t bytes, int to, void** request);
  int (*receive)(void* data, int64_t bytes, int from, void** request);
  // Sets *done, and then frees the request. Goes on with what is under way.
  int (*test)(void** request, int* done);
  // Ends every process of the job; may return.
  void (*abort)(int exit_code);
  int (*close)(void);
  const char* (*message)(int error);
};

// Device memory that one rank has and all receive, at places of their own.
struct SignetPiece {
  void* data;
  int64_t bytes;
  int from;
};

// Of a library for GPUs, `signet_collectives`: the ranks' numbers are in device memory, and what is asked is
// put into a stream (cudaStream_t).
struct SignetCollectives {
  int version;  // kSignetCollectivesVersion
  const char* name;

  int (*device)(char* out, int64_t bytes);  // the name of this process's GPU on its machine
  int (*unique_id)(void* out);              // kSignetIdBytes that one rank makes and all open with
  int (*open)(const void* id, int rank, int size, void** handle);
  // In place; bounds[r] .. bounds[r + 1] is rank r's part of `data`.
  int (*reduce_scatter)(void* handle, float* data, const int64_t* bounds, void* stream);
  int (*all_gather)(void* handle, const SignetPiece* pieces, int64_t count, void* stream);
  int (*all_reduce)(void* handle, double* data, int64_t size, void* stream);
  void (*close)(void* handle, int failed);  // failed: some rank is gone, what is under way is given up
  const char* (*message)(int error);
};
}

inline constexpr int kSignetMessagesVersion = 1;
inline constexpr int64_t kSignetMessageBytes = int64_t{1} << 30;
inline constexpr int kSignetCollectivesVersion = 2;
inline constexpr int64_t kSignetIdBytes = 128;
