#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "cli/exit_codes.h"

namespace varve::cli {
namespace {

volatile sig_atomic_t flag = 0;

void on_signal(int) {
  if (flag) _exit(kExitInterrupted);
  flag = 1;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_signal;  // without SA_RESTART: a blocking read returns and its loop can ask
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return flag != 0; }
void clear_interrupt() { flag = 0; }

}  // namespace varve::cli
