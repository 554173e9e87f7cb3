#pragma once
// The generators behind make_items, one for each task or family. docs/tasks.md describes what they ask.

#include <memory>
#include <string>

#include "eval/tasks/draft.h"

namespace varve::eval {

/// What a generator makes one haystack from.
struct Source {
  const TaskOptions* options = nullptr;
  int index = 0;
  std::shared_ptr<const SentenceText> text;  ///< null for a task that needs none

  /// The random numbers of this haystack; a name of its own for each task or family.
  Random random(const std::string& name) const {
    return Random::named(options->seed, draft_name(name, *options, index));
  }
};

/// One of RULER's needle tasks (Hsieh et al., "RULER: What's the real context size of your long-context language
/// models?", 2024, table 2).
struct NiahKind {
  enum class Hay { kNoise, kProse, kNeedles };
  Hay hay;
  bool uuid_keys;
  bool uuid_values;
  int keys;
  int values;   ///< of each key
  int queries;  ///< keys asked for
};

Draft draft_niah(const std::string& task, const NiahKind& kind, const Source& source);
Draft draft_variable_tracking(const std::string& task, const Source& source);
Result<Draft> draft_common_words(const std::string& task, const Source& source);
Draft draft_frequent_words(const std::string& task, const Source& source);

Draft draft_depth_sweep(const std::string& task, const Source& source);
Draft draft_multi_code(const std::string& task, const Source& source);
Draft draft_relational(const std::string& task, const Source& source);
Draft draft_digit_table(const std::string& task, const Source& source);
/// `chain`: from the person to the city, over the institute; otherwise from the institute to the city.
Draft draft_linkbench(const std::string& task, bool chain, const Source& source);

enum class DocumentQuestion { kAfter, kBefore, kEntry };
Draft draft_document_question(const std::string& task, DocumentQuestion kind, const Source& source);
/// Whether the document has entries that kEntry can ask for.
bool has_entries(std::string_view text);

Draft draft_echo(const std::string& task, const Source& source);

}  // namespace varve::eval
