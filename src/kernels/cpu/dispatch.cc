#include <algorithm>
#include <string>

#include "kernels/cpu/tables.h"

namespace varve::kernels {
namespace {

bool runs_here(const TableEntry& entry) {
  return std::all_of(entry.required.begin(), entry.required.end(), [](const Feature& f) { return f.present(); });
}

template <typename Tables, typename Name>
std::string join(const Tables& tables, Name name) {
  std::string all;
  for (const auto& table : tables) {
    if (!all.empty()) all += ", ";
    all += name(table);
  }
  return all;
}

}  // namespace

std::span<const TableEntry> all_tables() {
  static const TableEntry tables[] = {
      {"avx512vnni", avx512vnni_table, avx512vnni_features()},
      {"avx512", avx512_table, avx512_features()},
      {"avx2", avx2_table, avx2_features()},
      {"generic", generic_table, {}},
  };
  return tables;
}

const std::vector<const Kernels*>& available() {
  static const std::vector<const Kernels*> tables = [] {
    std::vector<const Kernels*> found;
    for (const TableEntry& entry : all_tables()) {
      if (runs_here(entry)) found.push_back(&entry.table());
    }
    return found;
  }();
  return tables;
}

Result<const Kernels*> choose(std::string_view name) {
  if (name.empty()) return available().front();
  for (const Kernels* table : available()) {
    if (name == table->name) return table;
  }
  const std::string quoted = "kernel '" + std::string(name) + "'";
  const std::string here = join(available(), [](const Kernels* t) { return t->name; });
  for (const TableEntry& entry : all_tables()) {
    if (name != entry.name) continue;
    return unsupported(quoted + " requires " + feature_names(entry.required, false) + "; this machine lacks " +
                       feature_names(entry.required, true) + " and can run " + here);
  }
  return invalid_argument(quoted + " is unknown; this build has " +
                          join(all_tables(), [](const TableEntry& e) { return e.name; }) + ", this machine can run " +
                          here);
}

}  // namespace varve::kernels
