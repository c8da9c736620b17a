// An ordinary user's rights while it lives, so that tests of permissions run for root, too.
#pragma once

#include <unistd.h>

#include <cstdlib>

namespace signet::test {

class Unprivileged {
 public:
  Unprivileged() : root_(::geteuid() == 0) {
    if (root_ && ::seteuid(kNobody) != 0) std::abort();
  }
  ~Unprivileged() {
    if (root_ && ::seteuid(0) != 0) std::abort();
  }
  Unprivileged(const Unprivileged&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
  bool root_;
};

}  // namespace signet::test
