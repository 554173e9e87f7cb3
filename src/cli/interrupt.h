#pragma once
// Ctrl-C as a question that long loops ask, so that a command can stop its work and still clean up after itself.

namespace varve::cli {

/// From now on the first Ctrl-C (SIGINT) or SIGTERM only sets a flag. A second one before the flag is cleared ends the
/// process at once: a loop that does not ask must not make the program unstoppable.
void catch_interrupts();

bool interrupted();
void clear_interrupt();

}  // namespace varve::cli
