#include "cli/trace/show.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "cli/model_options.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "cli/trace/summary.h"
#include "cli/trace/svg.h"
#include "cli/trace/terminal_picture.h"

namespace varve::cli {
namespace {

Status check_outputs(const TraceOptions& options) {
  const std::array outputs = {options.svg, options.html};
  if (Status s = check_distinct(outputs, std::span(&options.file, 1)); !s.ok()) return s;
  if (Status s = check_writable(options.svg); !s.ok()) return s;
  return check_writable(options.html);
}

Status write_file(const std::string& path, const std::string& content) {
  errno = 0;
  std::ofstream file(path, std::ios::trunc | std::ios::binary);
  file << content << std::flush;
  if (!file) return io_error(path + ": " + (errno != 0 ? std::strerror(errno) : "writing failed"));
  return {};
}

Canvas terminal_canvas() {
  Canvas canvas;
  if (!stdout_is_terminal()) return canvas;
  const TerminalSize size = stdout_size();
  canvas.columns = size.columns;
  canvas.lines = size.lines;
  canvas.colour = stdout_takes_colour();
  return canvas;
}

}  // namespace

Status show_trace(const TraceOptions& options) {
  if (Status s = check_outputs(options); !s.ok()) return s;
  std::optional<Progress> progress;
  const auto picture = read_picture(options.file, options.session, [&](uint64_t done, uint64_t total) {
    if (!progress) progress.emplace("reading", total, Unit::kBytes);
    progress->update(done);
  });
  progress.reset();
  if (!picture.ok()) return picture.status();
  if (!options.svg.empty()) {
    if (Status s = write_file(options.svg, draw_svg(*picture)); !s.ok()) return s;
  }
  if (!options.html.empty()) {
    if (Status s = write_file(options.html, draw_html(*picture)); !s.ok()) return s;
  }
  if (options.json) {
    std::cout << trace_json(*picture).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  } else {
    std::cout << draw_terminal(*picture, terminal_canvas());
  }
  return {};
}

}  // namespace varve::cli
