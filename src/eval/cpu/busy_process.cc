#include "eval/cpu/busy_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace varve::eval {

Result<BusyProcess> BusyProcess::start() {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return io_error(std::string("cannot start a busy process: ") + std::strerror(errno));
  if (child == 0) {
    // Only what a child of a program with threads may do: nothing that takes a lock.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    for (;;) asm volatile("");  // a loop with a side effect: a compiler may drop one without
  }
  return BusyProcess(child);
}

BusyProcess::BusyProcess(BusyProcess&& other) noexcept : child_(std::exchange(other.child_, -1)) {}

BusyProcess::~BusyProcess() {
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace varve::eval
