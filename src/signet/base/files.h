// Files that survive crashes and full disks. Whole files are replaced atomically (temporary name in the same
// folder, fsync, rename, fsync of the folder), logs are appended line by line, and a directory can be locked
// against a second process. Every failure is an Error that names the path: kResource when the machine is at
// fault (disk full, input/output error, too many open files), kBadInput when the path is (missing, read-only,
// not permitted, not a file).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace signet {

// The whole of a regular file, or of a pipe or device that this process was handed open, such as /dev/stdin.
// Refuses any other pipe or device, directories, and what is longer than max_bytes, without reading it all.
std::string read_file(const std::string& path, int64_t max_bytes);

// The file holds either its old or its new content, never a part. A symbolic link to a file is followed. A
// device or a pipe is written directly where it is named itself or was handed to this process open
// (/dev/stdout); refused are links to any other, and a pipe that nobody reads.
void write_file_atomic(const std::string& path, std::string_view content);
// Throws kBadInput where it would refuse such a link. To be called before the work whose result goes there.
void require_no_device_link(const std::string& path);

// Its temporary names and those of OutputFile, left behind by a killed process: `.tmp-..`.
bool is_unfinished_file(const std::string& name);
void remove_unfinished_files(const std::string& directory);

bool exists(const std::string& path);
bool is_directory(const std::string& path);
std::vector<std::string> list_directory(const std::string& path);  // names, sorted, without . and ..
void make_directory(const std::string& path);                      // not synced: see sync_directory
void make_directories(const std::string& path);                    // with parents; synced
void rename_path(const std::string& from, const std::string& to);  // not synced: see sync_directory
void sync_directory(const std::string& path);                      // makes its entries durable
void remove_tree(const std::string& path);  // never follows links; a missing path is no error
std::string parent_directory(const std::string& path);
std::string join_path(const std::string& directory, const std::string& name);

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();

 private:
  int fd_ = -1;
};

// Random access to a regular file. Reads go through pread into the caller's memory, not through a mapping, so
// a file that shrinks meanwhile is an Error and not a SIGBUS.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  void read_at(int64_t offset, void* destination, int64_t bytes) const;

 private:
  std::string path_;
  FileDescriptor fd_;
  int64_t size_ = 0;
};

// Calls `hear` with every line. What exceeds the bound is dropped, so that a file without line ends cannot
// fill the memory.
inline constexpr size_t kMaxLineBytes = 4 << 20;
void for_each_line(const InputFile& file, const std::function<void(const std::string&)>& hear);

// A file, pipe or terminal read from front to back.
class InputStream {
 public:
  explicit InputStream(const std::string& path);
  static InputStream standard();  // standard input
  // What is there, at most `bytes`; 0 at the end. Nothing may ever come through a pipe: a signal that
  // StopSignal noted ends the wait, on any thread, as an Error of kStopped or kInterrupted, and `unwanted` as
  // the end does.
  int64_t read(char* data, int64_t bytes, const std::stop_token& unwanted = {});

 private:
  InputStream(std::string path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  FileDescriptor fd_;
};

// A file to be written whole; destroyed without commit(), it is removed.
class OutputFile {
 public:
  enum Mode {
    kReplace,  // under a temporary name until commit() renames it: atomic by itself
    kInPlace   // a new file, synced by commit(): for a directory that is renamed or synced as a whole later
  };
  explicit OutputFile(const std::string& path, Mode mode = kReplace);
  OutputFile(const OutputFile&) = delete;
  ~OutputFile();
  void write(const void* data, int64_t bytes);
  void commit();

 private:
  std::string path_, written_;  // written_: the name to remove unless committed; empty for a device or pipe
  FileDescriptor fd_;
};

// Writes into a file that is there, anywhere in it, as several processes do at once.
class PatchFile {
 public:
  explicit PatchFile(const std::string& path);
  void write_at(int64_t offset, const void* data, int64_t bytes);
  void commit();  // what was written is on disk afterwards

 private:
  std::string path_;
  FileDescriptor fd_;
};

// A log of lines (JSONL). A line is either wholly there or, after a crash, cut off when the log is next
// opened; a failed append leaves the lines before it as they were.
class AppendFile {
 public:
  AppendFile() = default;
  // keep_bytes >= 0 first cuts the log to at most that many bytes: what a resumed run had written at its
  // checkpoint.
  explicit AppendFile(const std::string& path, int64_t keep_bytes = -1);
  void append(std::string_view line);  // one line, without its newline
  void sync();                         // what was appended is on disk afterwards
  int64_t size() const { return size_; }

 private:
  std::string path_;
  FileDescriptor fd_;
  int64_t size_ = 0;
};

// Holds <directory>/.lock until destroyed. The kernel drops the lock when its process dies, however it dies,
// so there are no stale locks. A second holder is refused with kFailure and the pid of the first.
class DirectoryLock {
 public:
  DirectoryLock() = default;
  explicit DirectoryLock(const std::string& directory);
  // Nothing when another process, or another lock of this one, holds it.
  static std::optional<DirectoryLock> try_lock(const std::string& directory);

 private:
  bool lock(const std::string& directory);  // false: held by another

  FileDescriptor fd_;
};

// Whether somebody holds that lock now. Changes nothing, so it serves a directory that may only be read.
bool is_locked(const std::string& directory);
// Seconds since anything was written to the file; -1 when there is none.
double seconds_since_change(const std::string& path);

// For tests: called before each system call that changes the file system, with the call's name and paths
// (`to` only for rename). A non-zero return makes the call fail with that errno; the hook may also end the
// process there.
using FileFaultHook = int (*)(const char* call, const char* path, const char* to);
void set_file_fault_hook(FileFaultHook hook);

}  // namespace signet
