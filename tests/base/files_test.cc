#include "signet/base/files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <thread>

#include "signet/base/signals.h"
#include "support/temporary_directory.h"
#include "support/unprivileged.h"

namespace signet {
namespace {

using test::expect_bad_input;
using test::expect_error;
using test::TemporaryDirectory;

// Runs `body` in a child process and returns its exit status; -1 when it was killed.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int status = 99;
    try {
      status = body();
    } catch (const Error& error) {
      status = error.exit_code();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void write_plain(const std::string& path, const std::string& content) {
  FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fwrite(content.data(), 1, content.size(), file);
  std::fclose(file);
}

TEST(InputStream, GivesWhatIsThereAndWaitsForNoMore) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  InputStream in("/dev/fd/" + std::to_string(ends[0]));
  char data[100];
  ASSERT_EQ(::write(ends[1], "a\nb", 3), 3);
  ASSERT_EQ(in.read(data, 100), 3);
  EXPECT_EQ(std::string(data, 3), "a\nb");
  ::close(ends[1]);
  EXPECT_EQ(in.read(data, 100), 0);
  ::close(ends[0]);
  TemporaryDirectory directory;
  expect_bad_input([&] { InputStream(directory.path()); }, directory.path());
  expect_bad_input([&] { InputStream(directory / "missing"); }, directory / "missing");
}

// Nobody ever writes: only a signal ends the wait for a pipe, though another thread than the one that noted
// it waits.
TEST(InputStream, AStopSignalEndsTheWaitForAPipe) {
  TemporaryDirectory directory;
  const std::string path = directory / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
  const auto wait = [&] {
    char data[10];
    InputStream(path).read(data, 10);
  };
  const int status = in_child([&] {
    ::alarm(60);
    StopSignal signals;
    std::thread waiting([&] { expect_error(wait, ErrorCode::kStopped, "was not read to its end"); });
    ::raise(SIGTERM);
    waiting.join();
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(ReadFile, ReadsExactlyUpToTheLimit) {
  TemporaryDirectory directory;
  const std::string path = directory / "f", content("a\0b\n", 4);
  write_plain(path, content);
  EXPECT_EQ(read_file(path, 4), content);
  EXPECT_EQ(read_file(path, 1 << 30), content);
  expect_bad_input([&] { read_file(path, 3); }, "is 4 bytes long; at most 3");
  write_plain(path, "");
  EXPECT_EQ(read_file(path, 0), "");
}

TEST(ReadFile, RefusesWhatIsNoFile) {
  TemporaryDirectory directory;
  expect_bad_input([&] { read_file(directory / "none", 10); }, "No such file");
  expect_bad_input([&] { read_file(directory.path(), 10); }, "Is a directory");
  expect_bad_input([&] { read_file("/dev/zero", 1000); },
                   "it is a device, and a regular file is wanted here");
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  expect_bad_input([&] { read_file(directory / "pipe", 1000); }, "it is a named pipe");  // waits for nobody
  std::filesystem::create_symlink("pipe", directory / "link");
  expect_bad_input([&] { read_file(directory / "link", 1000); }, "it is a named pipe");
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  const std::string socket_path = directory / "socket";
  socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  expect_bad_input([&] { read_file(socket_path, 1000); }, "it is a socket");
  expect_bad_input([&] { read_file(std::string(5000, 'x'), 10); }, "File name too long");
  expect_bad_input([&] { read_file("", 10); }, "No such file");
}

TEST(ReadFile, ReadsPipesAndProc) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(::write(ends[1], "0123456789", 10), 10);
    ::close(ends[1]);
  });
  const std::string text = read_file("/proc/self/fd/" + std::to_string(ends[0]), 1 << 20);
  writer.join();
  ::close(ends[0]);
  EXPECT_EQ(text.size(), 10000u);
  EXPECT_FALSE(read_file("/proc/self/status", 1 << 20).empty()) << "a file that says it has no length";
  const FileDescriptor null(::open("/dev/null", O_RDONLY));
  EXPECT_EQ(read_file("/dev/fd/" + std::to_string(null.get()), 10), "")
      << "handed over open, as `< /dev/null`";
}

TEST(ReadFile, ASparseGiantIsRefusedUnread) {
  TemporaryDirectory directory;
  write_plain(directory / "giant", "");
  std::filesystem::resize_file(directory / "giant", int64_t{2} << 30);
  expect_bad_input([&] { read_file(directory / "giant", 1 << 20); }, "2147483648 bytes long");
}

TEST(WriteFileAtomic, ReplacesAndLeavesNothingBehind) {
  TemporaryDirectory directory;
  write_file_atomic(directory / "f", "old");
  write_file_atomic(directory / "f", "new and longer");
  EXPECT_EQ(read_file(directory / "f", 100), "new and longer");
  EXPECT_EQ(list_directory(directory.path()), std::vector<std::string>{"f"});
}

TEST(WriteFileAtomic, KeepsWhoMayRead) {
  TemporaryDirectory directory;
  const std::string path = directory / "page.html";
  write_file_atomic(path, "one");
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  write_file_atomic(path, "two");
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(WriteFileAtomic, FollowsLinksAndWritesDevicesDirectly) {
  TemporaryDirectory directory;
  write_file_atomic(directory / "real", "1");
  std::filesystem::create_symlink("real", directory / "link");
  write_file_atomic(directory / "link", "2");
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_EQ(read_file(directory / "real", 10), "2");

  write_file_atomic("/dev/null", "x");
  struct stat info;
  ASSERT_EQ(::stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode)) << "/dev/null must stay a device";
  expect_error([] { write_file_atomic("/dev/full", "x"); }, ErrorCode::kResource, "No space left");

  // Who names a device means it; a link in a file's place is an accident.
  std::filesystem::create_symlink("/dev/full", directory / "to-device");
  expect_bad_input([&] { write_file_atomic(directory / "to-device", "x"); }, "it is a link to a device");

  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  expect_bad_input([&] { write_file_atomic(directory / "pipe", "x"); },
                   "nobody reads");  // and waits for none
  const FileDescriptor reader(::open((directory / "pipe").c_str(), O_RDONLY | O_NONBLOCK));
  write_file_atomic(directory / "pipe", "abc");
  char data[8];
  EXPECT_EQ(::read(reader.get(), data, sizeof data), 3);
}

TEST(WriteFileAtomic, SaysWhatIsWrongWithThePath) {
  TemporaryDirectory directory;
  expect_bad_input([&] { write_file_atomic(directory / "none/f", "x"); },
                   "none/f: No such file or directory");
  expect_bad_input([&] { write_file_atomic(directory.path(), "x"); }, "Is a directory");
  write_file_atomic(directory / "f", "x");
  expect_bad_input([&] { write_file_atomic(directory / "f/g", "x"); }, "Not a directory");
  ::chmod(directory.path().c_str(), 0555);
  {
    const test::Unprivileged user;
    expect_bad_input([&] { write_file_atomic(directory / "f", "y"); }, "Permission denied");
  }
  ::chmod(directory.path().c_str(), 0755);
}

// A real limit of the system: the write comes half-way and then fails.
TEST(WriteFileAtomic, AFileSizeLimitKeepsTheOldContent) {
  TemporaryDirectory directory;
  write_file_atomic(directory / "f", "old");
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    write_file_atomic(directory / "f", std::string(5000, 'x'));
    return 0;
  });
  EXPECT_EQ(status, static_cast<int>(ErrorCode::kResource));
  EXPECT_EQ(read_file(directory / "f", 100), "old");
  EXPECT_EQ(list_directory(directory.path()).size(), 1u);
}

TEST(WriteFileAtomic, TooManyOpenFiles) {
  TemporaryDirectory directory;
  write_file_atomic(directory / "f", "old");
  const int status = in_child([&] {
    const struct rlimit limit = {3, 3};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    write_file_atomic(directory / "f", "new");
    return 0;
  });
  EXPECT_EQ(status, static_cast<int>(ErrorCode::kResource));
  EXPECT_EQ(read_file(directory / "f", 100), "old");
}

int calls_left = 0, injected_error = 0;
int fail_at(const char*, const char*, const char*) { return calls_left-- == 0 ? injected_error : 0; }

// Each system call in turn fails: the file holds the old or the new content, and only the last call (the sync
// of the directory after the rename) may fail with the new one in place.
TEST(WriteFileAtomic, EverySystemCallMayFail) {
  for (const int error : {ENOSPC, EIO, EDQUOT, EROFS, EACCES}) {
    bool done = false;
    for (int n = 0; !done; ++n) {
      ASSERT_LT(n, 20);
      SCOPED_TRACE(testing::Message() << "call " << n << " error " << error);
      TemporaryDirectory directory;
      write_file_atomic(directory / "f", "old");
      calls_left = n, injected_error = error;
      set_file_fault_hook(fail_at);
      const auto thrown = test::error_of([&] { write_file_atomic(directory / "f", "new"); });
      set_file_fault_hook(nullptr);
      done = !thrown;
      const std::string content = read_file(directory / "f", 100);
      if (done) {
        EXPECT_EQ(content, "new");
        EXPECT_EQ(n, 5) << "open, write, fsync, rename, fsync of the directory";
      } else {
        EXPECT_EQ(content, n < 4 ? "old" : "new");
        const bool machine = error == ENOSPC || error == EIO || error == EDQUOT;
        EXPECT_EQ(thrown->code(), machine ? ErrorCode::kResource : ErrorCode::kBadInput) << thrown->what();
        EXPECT_EQ(list_directory(directory.path()).size(), 1u) << "the temporary file is removed";
      }
    }
  }
}

TEST(OutputFile, DestroyedWithoutCommitLeavesNothing) {
  TemporaryDirectory directory;
  for (const auto mode : {OutputFile::kReplace, OutputFile::kInPlace}) {
    OutputFile file(directory / "f", mode);
    file.write("x", 1);
  }
  EXPECT_TRUE(list_directory(directory.path()).empty());
  OutputFile first(directory / "f", OutputFile::kInPlace);
  expect_bad_input([&] { OutputFile second(directory / "f", OutputFile::kInPlace); }, "File exists");
}

TEST(InputFile, ReadsOnlyWithinTheFile) {
  TemporaryDirectory directory;
  write_plain(directory / "f", "0123456789");
  const InputFile file(directory / "f");
  char out[10];
  file.read_at(7, out, 3);
  EXPECT_EQ(std::string(out, 3), "789");
  file.read_at(10, out, 0);
  for (const auto& [offset, bytes] : std::vector<std::pair<int64_t, int64_t>>{
           {8, 3}, {11, 0}, {-1, 1}, {0, -1}, {INT64_MAX, INT64_MAX}, {1, INT64_MAX}})
    expect_bad_input([&, o = offset, b = bytes] { file.read_at(o, out, b); }, "outside the file of 10 bytes");
  std::filesystem::resize_file(directory / "f", 5);
  expect_bad_input([&] { file.read_at(0, out, 10); }, "became shorter");
  expect_bad_input([&] { InputFile zero("/dev/zero"); }, "it is a device");
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  expect_bad_input([&] { InputFile pipe(directory / "pipe"); },
                   "it is a named pipe");  // and does not wait for a writer
}

TEST(AppendFile, LinesComeBack) {
  TemporaryDirectory directory;
  {
    AppendFile log(directory / "log");
    log.append("{\"a\":1}");
    log.append("");
    log.sync();
    EXPECT_EQ(log.size(), 9);
  }
  AppendFile log(directory / "log");
  EXPECT_EQ(log.size(), 9);
  log.append("x");
  EXPECT_EQ(read_file(directory / "log", 100), "{\"a\":1}\n\nx\n");
  expect_error([&] { log.append("two\nlines"); }, ErrorCode::kFailure, "newline");
}

TEST(AppendFile, ATornLineIsCutWhereverItWasTorn) {
  TemporaryDirectory directory;
  const std::string whole = "first\nsecond\n" + std::string(9000, 'y') + "\n";
  for (size_t cut = 0; cut <= whole.size(); cut += cut < 20 ? 1 : 997) {
    write_plain(directory / "log", whole.substr(0, cut));
    AppendFile log(directory / "log");
    const std::string kept = read_file(directory / "log", 1 << 20);
    const size_t newline = whole.substr(0, cut).rfind('\n');
    EXPECT_EQ(kept, newline == std::string::npos ? "" : whole.substr(0, newline + 1)) << cut;
    EXPECT_EQ(log.size(), static_cast<int64_t>(kept.size()));
  }
}

TEST(AppendFile, ResumingCutsBackToTheCheckpoint) {
  TemporaryDirectory directory;
  write_plain(directory / "log", "1\n2\n3\n");
  EXPECT_EQ(AppendFile(directory / "log", 100).size(), 6);
  EXPECT_EQ(AppendFile(directory / "log", 4).size(), 4);
  EXPECT_EQ(read_file(directory / "log", 100), "1\n2\n");
  EXPECT_EQ(AppendFile(directory / "log", 3).size(), 2);
  EXPECT_EQ(AppendFile(directory / "log", 0).size(), 0);
}

TEST(AppendFile, AFailedAppendLeavesTheLinesBefore) {
  TemporaryDirectory directory;
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {50, 50};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    AppendFile log(directory / "log");
    log.append(std::string(30, 'a'));
    log.append(std::string(30, 'b'));
    return 0;
  });
  EXPECT_EQ(status, static_cast<int>(ErrorCode::kResource));
  EXPECT_EQ(read_file(directory / "log", 100), std::string(30, 'a') + "\n");
}

TEST(AppendFile, ADeletedLogIsNoticed) {
  TemporaryDirectory directory;
  AppendFile log(directory / "log");
  log.append("x");
  std::filesystem::remove(directory / "log");
  expect_error([&] { log.sync(); }, ErrorCode::kResource, "was deleted");
}

TEST(DirectoryLock, ASecondProcessIsRefusedWithThePid) {
  TemporaryDirectory directory;
  const DirectoryLock lock(directory.path());
  const std::string pid = std::to_string(::getpid());
  const int status = in_child([&] {
    const auto error = test::error_of([&] { DirectoryLock second(directory.path()); });
    return error && error->code() == ErrorCode::kFailure &&
           std::string(error->what()).find("pid " + pid) != std::string::npos;
  });
  EXPECT_EQ(status, 1);
  expect_error([&] { DirectoryLock second(directory.path()); }, ErrorCode::kFailure,
               "in use");  // same process too
}

TEST(DirectoryLock, ADeadHolderLeavesNoStaleLock) {
  TemporaryDirectory directory;
  EXPECT_EQ(in_child([&] {
              const DirectoryLock lock(directory.path());
              ::kill(::getpid(), SIGKILL);
              return 0;
            }),
            -1);
  EXPECT_TRUE(exists(directory / ".lock"));
  { const DirectoryLock lock(directory.path()); }
  const DirectoryLock again(directory.path());
}

TEST(DirectoryLock, SaysWhyItCannot) {
  TemporaryDirectory directory;
  expect_bad_input([&] { DirectoryLock lock(directory / "none"); }, "No such file");
  std::filesystem::create_symlink("/etc/passwd", directory / ".lock");
  expect_bad_input([&] { DirectoryLock lock(directory.path()); }, "cannot lock");
}

TEST(Directories, MakeAndRemoveTrees) {
  TemporaryDirectory directory;
  make_directories(directory / "a//b/c/");
  make_directories(directory / "a/b/c");
  EXPECT_TRUE(is_directory(directory / "a/b/c"));
  write_file_atomic(directory / "a/b/file", "x");
  write_file_atomic(directory / "outside", "x");
  std::filesystem::create_symlink(directory / "outside", directory / "a/link");
  std::filesystem::create_directory_symlink(directory.path(), directory / "a/loop");
  remove_tree(directory / "a");
  remove_tree(directory / "a");
  EXPECT_FALSE(exists(directory / "a"));
  EXPECT_TRUE(exists(directory / "outside")) << "links are removed, not followed";
  expect_bad_input([&] { make_directories(directory / "outside/b"); }, "cannot create directory");
  expect_bad_input([&] { make_directories(std::string(100000, 'a')); }, "File name too long");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "a/";
  expect_bad_input([&] { make_directories(deep); }, "File name too long");
}

TEST(Directories, RemovingALinkLeavesItsTarget) {
  TemporaryDirectory directory;
  make_directories(directory / "target/inner");
  std::filesystem::create_directory_symlink(directory / "target", directory / "link");
  remove_tree(directory / "link");
  EXPECT_FALSE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_TRUE(is_directory(directory / "target/inner"));
}

TEST(Paths, ParentAndJoin) {
  EXPECT_EQ(parent_directory("a"), ".");
  EXPECT_EQ(parent_directory("/a"), "/");
  EXPECT_EQ(parent_directory("a/b/c"), "a/b");
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("/", "b"), "/b");
}

}  // namespace
}  // namespace signet
