#include "cli/child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

namespace varve::cli {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

/// The line of a log that most likely says what went wrong: the last that names an error, else the last.
std::string last_words(const std::filesystem::path& log) {
  std::ifstream file(log);
  std::string last, last_error;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last = line;
    if (line.rfind("ERROR", 0) == 0 || line.rfind("E: ", 0) == 0) last_error = line;
  }
  return last_error.empty() ? last : last_error;
}

std::vector<std::string> child_environment(const std::filesystem::path& temp) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry; ++entry)
    if (std::strncmp(*entry, "TMPDIR=", 7) != 0) variables.push_back(*entry);
  variables.push_back("TMPDIR=" + temp.string());
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (std::string& s : strings) list.push_back(s.data());
  list.push_back(nullptr);
  return list;
}

/// Waits for the child, asking `keep_going` meanwhile and ending the child when the answer is no.
int wait_for(pid_t child, const std::function<bool()>& keep_going) {
  int wait_status = 0;
  bool told = false;
  while (waitpid(child, &wait_status, WNOHANG) == 0) {
    if (!told && !keep_going()) {
      told = true;
      kill(child, SIGTERM);
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return wait_status;
}

}  // namespace

Status run_child(const std::vector<std::string>& arguments, const ChildOptions& options) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, options.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&actions, options.directory.c_str());

  std::vector<std::string> argv_storage = arguments;
  std::vector<std::string> environment_storage = child_environment(options.temp);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0].c_str(), &actions, nullptr, pointers(argv_storage).data(),
                                 pointers(environment_storage).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return not_found(arguments[0] + " is not installed or not in PATH");
  if (error != 0) return io_error("cannot start " + arguments[0] + ": " + std::strerror(error));

  const int wait_status = wait_for(child, options.keep_going);
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return {};
  // Ctrl-C reaches the child as well, and it may end first: then its failure is not the news.
  if (!options.keep_going()) return {StatusCode::kCancelled, "interrupted"};
  const std::string how = WIFEXITED(wait_status) ? "exit code " + std::to_string(WEXITSTATUS(wait_status))
                                                 : "signal " + std::to_string(WTERMSIG(wait_status));
  return io_error(arguments[0] + " failed (" + how + "): " + last_words(options.log));
}

}  // namespace varve::cli
