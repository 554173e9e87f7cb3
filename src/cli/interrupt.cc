#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include "cli/exit_codes.h"

namespace varve::cli {
namespace {

volatile sig_atomic_t flag = 0;   // the first signal since the flag was cleared
volatile sig_atomic_t count = 0;  // signals since then
volatile sig_atomic_t end_count = 2;

void on_signal(int signal) {
  count = count + 1;
  if (count >= end_count) _exit(kExitInterrupted);
  if (flag == 0) flag = signal;
}

}  // namespace

void catch_interrupts(int ends_at) {
  end_count = ends_at;
  struct sigaction action = {};
  action.sa_handler = on_signal;  // without SA_RESTART: a blocking read returns and its loop can ask
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return flag != 0; }
bool terminated() { return flag == SIGTERM; }

void clear_interrupt() {
  flag = 0;
  count = 0;
}

}  // namespace varve::cli
