#include "cli/commands/state_line.h"

namespace muster {

void PrintStateLine(CommandContext& context, const StateLine& line) {
  Json json = {{line.key, line.name}, {"state", line.state}};
  json.update(line.fields);
  std::ostream& out = context.terminal.out;
  if (PrintStructured(out, context.output, json, line.key)) return;
  out << line.kind << " " << line.name << " is " << line.state << line.more << "\n";
}

}  // namespace muster
