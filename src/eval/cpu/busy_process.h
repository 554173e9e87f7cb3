#pragma once
// Another program on the same cores: a child process that computes without a pause.

#include <sys/types.h>

#include "varve/status.h"

namespace varve::eval {

/// Runs from start() until destroyed, or until this process ends.
class BusyProcess {
 public:
  static Result<BusyProcess> start();
  BusyProcess(BusyProcess&& other) noexcept;
  BusyProcess& operator=(BusyProcess&&) = delete;
  ~BusyProcess();

 private:
  explicit BusyProcess(pid_t child) : child_(child) {}
  pid_t child_;  ///< -1: moved from
};

}  // namespace varve::eval
