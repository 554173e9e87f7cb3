#pragma once
// Ctrl-C as a question that long loops ask, so that a command can stop its work and still clean up after itself.

namespace varve::cli {

/// From now on a Ctrl-C (SIGINT) or SIGTERM only sets a flag. Number `ends_at` before the flag is cleared ends the
/// process at once: a loop that does not ask must not make the program unstoppable.
void catch_interrupts(int ends_at = 2);

bool interrupted();
/// Whether it was SIGTERM: a request to end, where Ctrl-C may only mean "stop this".
bool terminated();
void clear_interrupt();

}  // namespace varve::cli
