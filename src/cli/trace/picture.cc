#include "cli/trace/picture.h"

#include <algorithm>
#include <unordered_map>

#include "cli/trace/reader.h"

namespace varve::cli {
namespace {

constexpr uint64_t kProgressLines = 4096;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Names a page across events: by its id, or without one by where it lies.
struct PageKey {
  uint64_t page = 0;
  uint64_t session = 0;
  int64_t window = 0;
  int64_t start = -1;
  bool operator==(const PageKey&) const = default;
};

struct PageKeyHash {
  size_t operator()(const PageKey& k) const {
    uint64_t h = 0;
    for (const uint64_t v : {k.page, k.session, static_cast<uint64_t>(k.window), static_cast<uint64_t>(k.start)}) {
      h = (h ^ v) * 0x9E3779B97F4A7C15u;  // Fibonacci hashing
      h ^= h >> 32;
    }
    return h;
  }
};

/// A session that holds a page, and where the picture shows it.
struct Holder {
  uint64_t session;
  int panel;  ///< -1: not drawn
  size_t row;
};

struct Page {
  cache::Tier tier = cache::Tier::kRecent;
  uint64_t bytes = 0;
  int64_t since = 0;  ///< the step of its tier, or the step up to which it is painted
  std::vector<Holder> holders;
};

/// Follows every page through the events and paints it when it moves.
class Painter {
 public:
  Painter(Picture* picture, std::optional<uint64_t> session) : picture_(*picture), session_(session) {}

  void take(TraceEvent e) {
    step_ = std::max(step_, e.step);
    e.step = step_;
    if (e.outcome != TraceOutcome::kPublished) return;
    fill_bytes(e.step);
    const bool drawn = !session_ || e.session == *session_;
    const PageKey key = e.page ? PageKey{*e.page, 0, e.window, -1} : PageKey{0, e.session, e.window, e.page_start};
    const auto found = pages_.find(key);
    if (!e.to) {
      if (found != pages_.end()) release(found, e);
    } else if (found != pages_.end()) {
      move(found->second, e, drawn);
    } else if (drawn) {
      picture_.unseen_before += e.from.has_value();
      Page& page = pages_[key];
      page = {*e.to, e.to_bytes, e.step, {}};
      held_[index(page.tier)] += page.bytes;
      hold(page, e);
    }
    if (is_promotion(e) && drawn) mark(e);
  }

  /// Paints what is still there up to the last step.
  void finish() {
    const int64_t end = picture_.survey.last_step + 1;
    for (auto& [key, page] : pages_) paint(page, end);
    fill_bytes(end);
    while (picture_.bytes.size() < picture_.columns) picture_.bytes.push_back(held_);
  }

 private:
  using Pages = std::unordered_map<PageKey, Page, PageKeyHash>;

  static size_t index(cache::Tier tier) { return static_cast<size_t>(tier); }

  size_t column_of(int64_t step) const {
    const int64_t column = (step - picture_.survey.first_step) / picture_.steps_per_column;
    return static_cast<size_t>(std::clamp<int64_t>(column, 0, static_cast<int64_t>(picture_.columns) - 1));
  }

  int panel_of(const TraceEvent& e) const {
    for (size_t p = 0; p < picture_.panels.size(); ++p) {
      if (picture_.panels[p].key == PanelKey{e.session, e.window}) return static_cast<int>(p);
    }
    return -1;
  }

  size_t row_of(int panel, int64_t page_start) const {
    if (panel < 0) return 0;
    const Panel& p = picture_.panels[static_cast<size_t>(panel)];
    const int64_t row = page_start / picture_.survey.page_tokens / p.pages_per_row;
    return std::min(static_cast<size_t>(row), p.rows - 1);
  }

  void hold(Page& page, const TraceEvent& e) {
    const int panel = panel_of(e);
    page.holders.push_back({e.session, panel, row_of(panel, e.page_start)});
  }

  void move(Page& page, const TraceEvent& e, bool drawn) {
    paint(page, e.step);
    // A page that comes from nowhere and is known comes to another session, in the tier it is in.
    picture_.contradictions += e.from.value_or(*e.to) != page.tier;
    held_[index(page.tier)] -= page.bytes;
    page.tier = *e.to;
    page.bytes = e.to_bytes;
    held_[index(page.tier)] += page.bytes;
    const bool holds = std::ranges::any_of(page.holders, [&](const Holder& h) { return h.session == e.session; });
    if (drawn && !holds) hold(page, e);
  }

  void release(Pages::iterator at, const TraceEvent& e) {
    Page& page = at->second;
    paint(page, e.step);
    picture_.contradictions += e.from && *e.from != page.tier;
    std::erase_if(page.holders, [&](const Holder& h) { return h.session == e.session; });
    if (!page.holders.empty()) return;
    held_[index(page.tier)] -= page.bytes;
    pages_.erase(at);
  }

  /// Adds the steps that the page has spent in its tier, up to `end`, to the cells of all that hold it.
  void paint(Page& page, int64_t end) {
    const int64_t begin = std::max(page.since, picture_.survey.first_step);
    end = std::min(end, picture_.survey.last_step + 1);
    page.since = std::max(page.since, end);
    if (begin >= end) return;
    const size_t first = column_of(begin), last = column_of(end - 1);
    for (const Holder& h : page.holders) {
      if (h.panel < 0) continue;
      Panel& panel = picture_.panels[static_cast<size_t>(h.panel)];
      for (size_t c = first; c <= last; ++c) {
        const int64_t from = std::max(begin, picture_.survey.first_step + int64_t(c) * picture_.steps_per_column);
        const int64_t to = std::min(end, picture_.column_end(c) + 1);
        panel.cells[h.row * panel.columns + c][index(page.tier)] += static_cast<uint64_t>(to - from);
      }
    }
  }

  void mark(const TraceEvent& e) {
    const int panel = panel_of(e);
    if (panel < 0) return;
    if (picture_.marks.size() == kMostMarks) {
      ++picture_.unmarked;
    } else {
      picture_.marks.push_back({static_cast<size_t>(panel), row_of(panel, e.page_start), e});
    }
  }

  /// The bytes of every column that ends before `step` are known.
  void fill_bytes(int64_t step) {
    while (picture_.bytes.size() < picture_.columns && picture_.column_end(picture_.bytes.size()) < step) {
      picture_.bytes.push_back(held_);
    }
  }

  Picture& picture_;
  std::optional<uint64_t> session_;
  Pages pages_;
  TierAmounts held_{};
  int64_t step_ = 0;
};

Panel empty_panel(const PanelKey& key, const PanelSpan& span, const Picture& picture) {
  const int64_t pages = span.last_page_start / picture.survey.page_tokens + 1;
  Panel panel;
  panel.key = key;
  panel.span = span;
  panel.steps_per_column = picture.steps_per_column;
  panel.pages_per_row = divide_up(pages, kMostRows);
  panel.rows = static_cast<size_t>(divide_up(pages, panel.pages_per_row));
  panel.columns = picture.columns;
  panel.cells.resize(panel.rows * panel.columns);
  return panel;
}

std::string counted(uint64_t n, const char* one, const char* many) {
  return std::to_string(n) + " " + (n == 1 ? one : many);
}

}  // namespace

Place commonest(const TierAmounts& amounts) {
  Place best;
  uint64_t most = 0;
  for (size_t t = 0; t < amounts.size(); ++t) {
    if (amounts[t] == 0 || amounts[t] < most) continue;
    most = amounts[t];
    best = static_cast<cache::Tier>(t);
  }
  return best;
}

Panel Panel::coarsened(size_t down, size_t across) const {
  Panel out;
  out.key = key;
  out.span = span;
  out.steps_per_column = steps_per_column * static_cast<int64_t>(across);
  out.pages_per_row = pages_per_row * static_cast<int64_t>(down);
  out.rows = (rows + down - 1) / down;
  out.columns = (columns + across - 1) / across;
  out.cells.resize(out.rows * out.columns);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      TierAmounts& sum = out.cells[r / down * out.columns + c / across];
      for (size_t t = 0; t < cache::kTiers; ++t) sum[t] += cell(r, c)[t];
    }
  }
  return out;
}

std::vector<cache::Tier> Picture::tiers() const {
  std::vector<cache::Tier> out;
  for (size_t t = 0; t < cache::kTiers; ++t) {
    const auto tier = static_cast<cache::Tier>(t);
    const bool seen = std::ranges::any_of(
        survey.moves, [&](const auto& move) { return move.first.to == tier && move.second.published > 0; });
    if (seen) out.push_back(tier);
  }
  return out;
}

int64_t Picture::column_end(size_t column) const {
  return std::min(survey.first_step + (static_cast<int64_t>(column) + 1) * steps_per_column - 1, survey.last_step);
}

std::vector<std::string> Picture::notes() const {
  std::vector<std::string> out;
  if (!survey.header.present) {
    out.push_back("the file has no header line; pages of " + std::to_string(survey.page_tokens) +
                  " tokens follow from the page starts");
  } else if (survey.header.page_tokens == 0) {
    out.push_back("the header does not say page_tokens; pages of " + std::to_string(survey.page_tokens) +
                  " tokens follow from the page starts");
  }
  if (survey.cut_line) {
    out.push_back("line " + std::to_string(*survey.cut_line) +
                  ", the last one, ends in the middle and is left out: its writer was stopped");
  }
  if (survey.panels.size() > panels.size()) {
    out.push_back("the first " + std::to_string(panels.size()) + " of " + std::to_string(survey.panels.size()) +
                  " panels are drawn, all are counted; --session N draws another");
  }
  if (unmarked > 0) {
    out.push_back("the first " + std::to_string(marks.size()) + " promotions are marked, " + std::to_string(unmarked) +
                  " are not");
  }
  if (unseen_before > 0) {
    out.push_back(counted(unseen_before, "page is", "pages are") +
                  " first seen in a move between tiers; what came before is not drawn");
  }
  if (contradictions > 0) {
    out.push_back(counted(contradictions, "move leaves", "moves leave") +
                  " another tier than the page was in: the trace has gaps");
  }
  if (survey.backward_steps > 0) {
    out.push_back(counted(survey.backward_steps, "event is", "events are") +
                  " behind the step of the one before; drawn at that step");
  }
  return out;
}

Result<Picture> read_picture(const std::string& path, std::optional<uint64_t> session, const TraceProgress& progress) {
  const auto half = [&](uint64_t which) {
    return [&progress, which](uint64_t done, uint64_t total) {
      if (progress) progress(done + which * total, 2 * total);
    };
  };
  auto survey = survey_trace(path, session, half(0));
  if (!survey.ok()) return survey.status();
  Picture out;
  out.survey = std::move(*survey);
  if (out.survey.events == 0) return out;
  const int64_t steps = out.survey.last_step - out.survey.first_step + 1;
  out.steps_per_column = divide_up(steps, kMostColumns);
  out.columns = static_cast<size_t>(divide_up(steps, out.steps_per_column));
  for (const auto& [key, span] : out.survey.panels) {
    if (out.panels.size() == kMostPanels) break;
    out.panels.push_back(empty_panel(key, span, out));
  }

  auto reader = TraceReader::open(path);
  if (!reader.ok()) return reader.status();
  Painter painter(&out, session);
  TraceEvent e;
  // A trace that is still being written may have grown: only what the survey saw is painted.
  for (uint64_t i = 0; i < out.survey.file_events; ++i) {
    const auto more = reader->next(&e);
    if (!more.ok()) return more.status();
    if (!*more) return corrupt(path + ": line " + std::to_string(reader->line()) + ": shorter than a moment ago");
    if (reader->line() % kProgressLines == 0) half(1)(reader->bytes(), reader->file_bytes());
    painter.take(std::move(e));
  }
  painter.finish();
  return out;
}

}  // namespace varve::cli
