#include "signet/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>

#include "signet/base/error.h"
#include "signet/base/signals.h"
#include "signet/base/text.h"

namespace signet {
namespace {

std::atomic<FileFaultHook> fault_hook{nullptr};

[[noreturn]] void fail_io(const char* action, const std::string& path, int error) {
  const char* advice = "";
  auto code = ErrorCode::kBadInput;
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      advice = "; free some space and try again (what was there before is intact)";
      code = ErrorCode::kResource;
      break;
    case EMFILE:
    case ENFILE:
      advice = "; raise the limit on open files (ulimit -n)";
      code = ErrorCode::kResource;
      break;
    case EFBIG:
      advice = "; raise the limit on the size of files (ulimit -f)";
      code = ErrorCode::kResource;
      break;
    case EIO:
    case ENOMEM:
    case ESTALE:
    case ENOLCK:
      code = ErrorCode::kResource;
      break;
    default:
      break;
  }
  fail(code, "cannot {} {}: {}{}", action, printable(path), std::generic_category().message(error), advice);
}

// Runs one system call, after the hook and again when a signal interrupted it. Returns what the call
// returned; errno is set when that is -1.
template <class Call>
auto changing(const char* name, const std::string& path, const char* to, Call call) -> decltype(call()) {
  if (const FileFaultHook hook = fault_hook.load(std::memory_order_relaxed)) {
    if (const int error = hook(name, path.c_str(), to)) {
      errno = error;
      return -1;
    }
  }
  while (true) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

int open_path(const std::string& path, int flags) {
  while (true) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
    if (fd != -1 || errno != EINTR) return fd;
  }
}

int create_path(const std::string& path, int flags, mode_t mode = 0666) {
  return changing("open", path, nullptr, [&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
}

// At `offset`, or (-1) where the last one ended. 0 or the errno of the write that failed; `written` says how
// far it came.
int write_all(int fd, const std::string& path, const char* data, int64_t bytes, int64_t& written,
              int64_t offset = -1) {
  constexpr int64_t kMaxWrite = 1 << 26;  // one write() may not exceed 2 GB
  for (written = 0; written < bytes;) {
    const auto n = changing("write", path, nullptr, [&] {
      const auto count = static_cast<size_t>(std::min(bytes - written, kMaxWrite));
      return offset < 0 ? ::write(fd, data + written, count)
                        : ::pwrite(fd, data + written, count, offset + written);
    });
    if (n == -1) return errno;
    written += n;
  }
  return 0;
}

// A copy of the descriptor by which this process was handed what lies at the path, but for one that is
// `useless` (O_RDONLY to write, O_WRONLY to read): standard input is one of /dev/stdin, and a shell's <(..)
// is /dev/fd/N. Nothing where it was not.
FileDescriptor handed_descriptor(const struct stat& wanted, int useless) {
  constexpr int kMost = 1024;
  for (int fd = 0; fd < kMost; ++fd) {
    struct stat info;
    if (::fstat(fd, &info) != 0 || info.st_dev != wanted.st_dev || info.st_ino != wanted.st_ino) continue;
    if ((::fcntl(fd, F_GETFL) & O_ACCMODE) != useless) return FileDescriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
  return {};
}

const char* kind_name(const struct stat& info) {
  return S_ISFIFO(info.st_mode) ? "named pipe" : S_ISSOCK(info.st_mode) ? "socket" : "device";
}
[[noreturn]] void refuse_irregular(const std::string& path, const struct stat& info) {
  bad_input("cannot read {}: it is a {}, and a regular file is wanted here", printable(path),
            kind_name(info));
}

enum class Readable {
  kRegular,  // only a regular file
  kHanded,   // or a pipe or device that this process was handed open: to open one by its name may wait for
             // ever
  kStream    // anything but a directory
};

FileDescriptor open_to_read(const std::string& path, Readable readable, struct stat& info) {
  if (::stat(path.c_str(), &info) != 0) fail_io("read", path, errno);
  if (S_ISDIR(info.st_mode)) fail_io("read", path, EISDIR);
  const bool regular = S_ISREG(info.st_mode);
  if (!regular && readable != Readable::kStream) {
    FileDescriptor handed =
        readable == Readable::kHanded ? handed_descriptor(info, O_WRONLY) : FileDescriptor();
    if (!handed) refuse_irregular(path, info);
    return handed;
  }
  // Without waiting for the writer of a pipe: that is up to InputStream. And another file may have taken its
  // place meanwhile.
  FileDescriptor fd(open_path(path, O_RDONLY | O_NONBLOCK));
  if (!fd || ::fstat(fd.get(), &info) != 0) fail_io("read", path, errno);
  if (regular && !S_ISREG(info.st_mode)) refuse_irregular(path, info);
  return fd;
}

// Up to `bytes`, at `offset` or (-1) from where the last one ended; the number read, 0 at the end.
int64_t read_once(int fd, const std::string& path, char* data, int64_t bytes, int64_t offset) {
  const auto count = static_cast<size_t>(std::min<int64_t>(bytes, 1 << 26));
  while (true) {
    const ssize_t n = offset < 0 ? ::read(fd, data, count) : ::pread(fd, data, count, offset);
    if (n >= 0) return n;
    if (errno != EINTR) fail_io("read", path, errno);
  }
}

// The same until `bytes` or the end of the file.
int64_t read_some(int fd, const std::string& path, char* data, int64_t bytes, int64_t offset) {
  int64_t done = 0;
  while (done < bytes) {
    const int64_t n = read_once(fd, path, data + done, bytes - done, offset < 0 ? -1 : offset + done);
    if (n == 0) break;
    done += n;
  }
  return done;
}

// For what is no regular file: a copy of the descriptor by which this process was handed it, as /dev/stdout,
// or nothing. A link to a device that was not handed over is refused: who names a file means a file.
FileDescriptor handed_to_write(const std::string& path, const struct stat& info) {
  FileDescriptor handed = handed_descriptor(info, O_RDONLY);
  struct stat itself;
  if (!handed && !S_ISDIR(info.st_mode) && ::lstat(path.c_str(), &itself) == 0 && S_ISLNK(itself.st_mode))
    bad_input("cannot write {}: it is a link to a {}; remove the link, or name another file", printable(path),
              kind_name(info));
  return handed;
}

void remove_file(const std::string& path) {
  changing("unlink", path, nullptr, [&] { return ::unlink(path.c_str()); });
}

}  // namespace

void set_file_fault_hook(FileFaultHook hook) { fault_hook = hook; }

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}
FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}
int FileDescriptor::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

std::string parent_directory(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string join_path(const std::string& directory, const std::string& name) {
  return directory.empty() || directory.back() == '/' ? directory + name : directory + "/" + name;
}

bool exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::vector<std::string> list_directory(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (!directory) fail_io("list", path, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) fail_io("list", path, errno);
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_file(const std::string& path, int64_t max_bytes) {
  struct stat info;
  const FileDescriptor fd = open_to_read(path, Readable::kHanded, info);
  if (info.st_size > max_bytes)
    bad_input("{} is {} long; at most {} are accepted here", printable(path), count_of(info.st_size, "byte"),
              max_bytes);
  // A pipe or a file of /proc has no size beforehand, and a file may grow while it is read.
  std::string content;
  int64_t got = 0;
  for (int64_t room = info.st_size + 1;; room = std::max<int64_t>(got, 1 << 16)) {
    content.resize(static_cast<size_t>(got + std::min(room, max_bytes + 1 - got)));
    const int64_t asked = static_cast<int64_t>(content.size()) - got;
    const int64_t n = read_some(fd.get(), path, content.data() + got, asked, -1);
    got += n;
    if (n < asked) break;
    if (got > max_bytes)
      bad_input("{} is longer than the {} bytes accepted here", printable(path), max_bytes);
  }
  content.resize(static_cast<size_t>(got));
  return content;
}

bool is_unfinished_file(const std::string& name) { return name.rfind(".tmp-", 0) == 0; }

void remove_unfinished_files(const std::string& directory) {
  for (const std::string& name : list_directory(directory))
    if (is_unfinished_file(name)) remove_tree(join_path(directory, name));
}

void write_file_atomic(const std::string& path, std::string_view content) {
  OutputFile file(path);
  file.write(content.data(), static_cast<int64_t>(content.size()));
  file.commit();
}

void require_no_device_link(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) handed_to_write(path, info);
}

void make_directory(const std::string& path) {
  if (changing("mkdir", path, nullptr, [&] { return ::mkdir(path.c_str(), 0777); }) == 0) return;
  const int error = errno;
  if (error != EEXIST || !is_directory(path)) fail_io("create directory", path, error);
}

void make_directories(const std::string& path) {
  // Trailing slashes would make the last part of the path look like its own parent.
  const std::string trimmed = path.substr(0, path.find_last_not_of('/') + 1);
  if (trimmed.empty() || is_directory(trimmed)) return;
  if (trimmed.size() >= PATH_MAX) fail_io("create directory", trimmed, ENAMETOOLONG);
  const std::string parent = parent_directory(trimmed);
  make_directories(parent);
  make_directory(trimmed);
  sync_directory(parent);
}

void rename_path(const std::string& from, const std::string& to) {
  if (changing("rename", from, to.c_str(), [&] { return ::rename(from.c_str(), to.c_str()); }) != 0)
    fail_io(fmt::format("rename {} to", printable(from)).c_str(), to, errno);
}

void sync_directory(const std::string& path) {
  const FileDescriptor fd(open_path(path, O_RDONLY | O_DIRECTORY));
  if (!fd) fail_io("open directory", path, errno);
  // Some network file systems cannot sync a directory and say EINVAL; there is nothing better to do there.
  if (changing("fsync", path, nullptr, [&] { return ::fsync(fd.get()); }) != 0 && errno != EINVAL)
    fail_io("sync", path, errno);
}

void remove_tree(const std::string& path) {
  // Grows while it is walked: each directory is followed by what is in it. In reverse, each is empty when its
  // turn comes.
  std::vector<std::string> paths = {path};
  for (size_t i = 0; i < paths.size(); ++i) {
    struct stat info;
    if (::lstat(paths[i].c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
    const std::string directory = paths[i];
    for (const std::string& name : list_directory(directory)) paths.push_back(join_path(directory, name));
  }
  for (auto it = paths.rbegin(); it != paths.rend(); ++it)
    if (changing("unlink", *it, nullptr, [&] { return std::remove(it->c_str()); }) != 0 && errno != ENOENT)
      fail_io("remove", *it, errno);
}

InputFile::InputFile(const std::string& path) : path_(path) {
  struct stat info;
  fd_ = open_to_read(path, Readable::kRegular, info);
  size_ = info.st_size;
}

void InputFile::read_at(int64_t offset, void* destination, int64_t bytes) const {
  if (offset < 0 || bytes < 0 || offset > size_ || bytes > size_ - offset)
    bad_input("{}: {} at {}: outside the file of {}", printable(path_), count_of(bytes, "byte"), offset,
              count_of(size_, "byte"));
  if (read_some(fd_.get(), path_, static_cast<char*>(destination), bytes, offset) != bytes)
    bad_input("{}: the file became shorter while it was read", printable(path_));
}

void for_each_line(const InputFile& file, const std::function<void(const std::string&)>& hear) {
  std::string buffer(1 << 16, '\0'), line;
  for (int64_t at = 0; at < file.size();) {
    const int64_t bytes = std::min(file.size() - at, static_cast<int64_t>(buffer.size()));
    file.read_at(at, buffer.data(), bytes);
    at += bytes;
    for (std::string_view rest(buffer.data(), static_cast<size_t>(bytes)); !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      line += rest.substr(0, std::min(end, kMaxLineBytes - line.size()));
      if (end == rest.size()) break;
      hear(line);
      line.clear();
      rest.remove_prefix(end + 1);
    }
  }
  if (!line.empty()) hear(line);
}

InputStream::InputStream(const std::string& path) : path_(path) {
  struct stat info;
  fd_ = open_to_read(path, Readable::kStream, info);
}

InputStream InputStream::standard() {
  FileDescriptor fd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!fd) fail_io("read", "standard input", errno);
  return InputStream("standard input", std::move(fd));
}

int64_t InputStream::read(char* data, int64_t bytes, const std::stop_token& unwanted) {
  while (true) {
    struct pollfd ready = {fd_.get(), POLLIN, 0};
    const int events = ::poll(&ready, 1, 100);
    if (events < 0 && errno != EINTR) fail_io("read", path_, errno);
    if (events < 1) {
      if (const int signal = StopSignal::requested())
        StopSignal::fail_stopped(signal, printable(path_) + " was not read to its end");
      if (unwanted.stop_requested()) return 0;
      continue;
    }
    const ssize_t n = ::read(fd_.get(), data, static_cast<size_t>(std::min<int64_t>(bytes, 1 << 26)));
    if (n >= 0) return n;
    if (errno != EINTR && errno != EAGAIN) fail_io("read", path_, errno);
  }
}

OutputFile::OutputFile(const std::string& path, Mode mode) : path_(path) {
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  struct stat info;
  const bool there = ::stat(path.c_str(), &info) == 0;
  // written_ is set before the file is there: nothing may fail between making it and knowing what to remove.
  if (mode == kInPlace) {
    written_ = path;
    fd_ = FileDescriptor(create_path(written_, kNew));
  } else if (there && !S_ISREG(info.st_mode)) {
    fd_ = handed_to_write(path, info);
    if (fd_) return;
    // Refused by the system for a directory, and for a pipe that nobody reads, which would be waited for.
    fd_ = FileDescriptor(create_path(path, O_WRONLY | O_NONBLOCK));
    if (!fd_ && errno == ENXIO && S_ISFIFO(info.st_mode))
      bad_input("cannot write {}: nobody reads this named pipe; start its reader first", printable(path));
    if (fd_ && ::fcntl(fd_.get(), F_SETFL, O_WRONLY) != 0) fail_io("write", path, errno);
  } else {
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
    if (real) path_ = real.get();
    static std::atomic<int> counter{0};
    const mode_t mode = there ? info.st_mode & 0777 : 0666;  // what nobody else could read stays so
    do {
      written_ = join_path(parent_directory(path_), fmt::format(".tmp-{}-{}", ::getpid(), counter++));
      fd_ = FileDescriptor(create_path(written_, kNew, mode));
    } while (!fd_ && errno == EEXIST);  // left by a killed process that had the same pid
    // And what others could, whatever new files may be. A file system without permissions has nothing to
    // keep.
    if (fd_ && there) (void)!::fchmod(fd_.get(), mode);
  }
  if (!fd_) fail_io("write", path, errno);
}

OutputFile::~OutputFile() {
  if (!written_.empty()) remove_file(written_);
}

void OutputFile::write(const void* data, int64_t bytes) {
  const std::string& name = written_.empty() ? path_ : written_;
  int64_t done;
  if (const int error = write_all(fd_.get(), name, static_cast<const char*>(data), bytes, done))
    fail_io("write", path_, error);
}

void OutputFile::commit() {
  if (!written_.empty() && changing("fsync", written_, nullptr, [&] { return ::fsync(fd_.get()); }) != 0)
    fail_io("sync", path_, errno);
  // Network file systems report some failed writes only here. No retry: the descriptor is gone either way.
  if (::close(fd_.release()) != 0 && errno != EINTR) fail_io("write", path_, errno);
  if (written_.empty()) return;
  const bool renamed = written_ != path_;
  if (renamed) rename_path(written_, path_);
  written_.clear();
  if (renamed) sync_directory(parent_directory(path_));
}

PatchFile::PatchFile(const std::string& path) : path_(path), fd_(create_path(path, O_WRONLY | O_NOFOLLOW)) {
  if (!fd_) fail_io("write", path, errno);
}

void PatchFile::write_at(int64_t offset, const void* data, int64_t bytes) {
  int64_t done;
  if (const int error = write_all(fd_.get(), path_, static_cast<const char*>(data), bytes, done, offset))
    fail_io("write", path_, error);
}

void PatchFile::commit() {
  if (changing("fsync", path_, nullptr, [&] { return ::fsync(fd_.get()); }) != 0)
    fail_io("sync", path_, errno);
  if (::close(fd_.release()) != 0 && errno != EINTR) fail_io("write", path_, errno);
}

AppendFile::AppendFile(const std::string& path, int64_t keep_bytes)
    : path_(path), fd_(create_path(path, O_RDWR | O_CREAT | O_APPEND)) {
  struct stat info;
  if (!fd_ || ::fstat(fd_.get(), &info) != 0) fail_io("append to", path, errno);
  if (!S_ISREG(info.st_mode)) bad_input("cannot append to {}: not a regular file", printable(path));
  int64_t keep = info.st_size;
  if (keep_bytes >= 0) keep = std::min(keep, keep_bytes);
  // Back to the last newline: a line without one was being written when the process died.
  char block[4096];
  while (keep > 0) {
    const int64_t begin = std::max<int64_t>(0, keep - static_cast<int64_t>(sizeof block));
    const int64_t n = read_some(fd_.get(), path, block, keep - begin, begin);
    const auto* newline = static_cast<const char*>(::memrchr(block, '\n', static_cast<size_t>(n)));
    keep = newline ? begin + (newline - block) + 1 : begin;
    if (newline) break;
  }
  if (keep < info.st_size &&
      changing("ftruncate", path, nullptr, [&] { return ::ftruncate(fd_.get(), keep); }) != 0)
    fail_io("truncate", path, errno);
  size_ = keep;
}

void AppendFile::append(std::string_view line) {
  if (line.find('\n') != std::string_view::npos)
    fail(ErrorCode::kFailure, "{}: a line to append holds a newline", printable(path_));
  std::string text(line);
  text += '\n';
  int64_t written;
  if (const int error =
          write_all(fd_.get(), path_, text.data(), static_cast<int64_t>(text.size()), written)) {
    if (written > 0) [[maybe_unused]]
      const int ignored = ::ftruncate(fd_.get(), size_);  // else the torn line is cut when next opened
    fail_io("append to", path_, error);
  }
  size_ += written;
}

void AppendFile::sync() {
  if (!fd_) return;  // never opened
  struct stat info;
  if (::fstat(fd_.get(), &info) == 0 && info.st_nlink == 0)
    fail(ErrorCode::kResource, "{} was deleted while it was written", printable(path_));
  if (changing("fsync", path_, nullptr, [&] { return ::fsync(fd_.get()); }) != 0)
    fail_io("sync", path_, errno);
}

DirectoryLock::DirectoryLock(const std::string& directory) {
  if (lock(directory)) return;
  char holder[64];
  const std::string path = join_path(directory, ".lock");
  const std::string who(holder, static_cast<size_t>(read_some(fd_.get(), path, holder, sizeof holder, 0)));
  fail(ErrorCode::kFailure, "{} is in use by another process ({}); wait for it or choose another directory",
       printable(directory), who.empty() ? "pid unknown" : printable(who));
}

std::optional<DirectoryLock> DirectoryLock::try_lock(const std::string& directory) {
  DirectoryLock taken;
  if (!taken.lock(directory)) return std::nullopt;
  return taken;
}

bool DirectoryLock::lock(const std::string& directory) {
  const std::string path = join_path(directory, ".lock");
  while (true) {
    fd_ = FileDescriptor(create_path(path, O_RDWR | O_CREAT | O_NOFOLLOW));
    if (!fd_) fail_io("lock", path, errno);
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail_io("lock", path, errno);
      return false;
    }
    // The lock counts only if the name still leads to the file that was locked.
    struct stat locked, named;
    if (::fstat(fd_.get(), &locked) == 0 && ::stat(path.c_str(), &named) == 0 &&
        locked.st_ino == named.st_ino && locked.st_dev == named.st_dev)
      break;
  }
  const std::string who = fmt::format("pid {}", ::getpid());
  int64_t written;
  if (::ftruncate(fd_.get(), 0) != 0) fail_io("lock", path, errno);
  if (const int error = write_all(fd_.get(), path, who.data(), static_cast<int64_t>(who.size()), written))
    fail_io("lock", path, error);
  return true;
}

bool is_locked(const std::string& directory) {
  const FileDescriptor fd(open_path(join_path(directory, ".lock"), O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return false;
  const bool held = ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!held) ::flock(fd.get(), LOCK_UN);
  return held;
}

double seconds_since_change(const std::string& path) {
  struct stat info;
  struct timespec now;
  if (::stat(path.c_str(), &info) != 0 || ::clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  return std::max(0.0, static_cast<double>(now.tv_sec - info.st_mtim.tv_sec) +
                           1e-9 * static_cast<double>(now.tv_nsec - info.st_mtim.tv_nsec));
}

}  // namespace signet
