#include <string>

#include "kernels/cpu/tables.h"

namespace varve::kernels {

const std::vector<const Kernels*>& available() {
  static const std::vector<const Kernels*> tables = {&generic_table()};
  return tables;
}

Result<const Kernels*> choose(std::string_view name) {
  if (name.empty()) return available().front();
  std::string there;
  for (const Kernels* table : available()) {
    if (name == table->name) return table;
    there += there.empty() ? "" : ", ";
    there += table->name;
  }
  return unsupported("kernel '" + std::string(name) + "' is not available here; this machine runs " + there);
}

}  // namespace varve::kernels
