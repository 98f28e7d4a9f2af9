// Renders a template in Jinja: render_rows TEMPLATE ROWS prints for each line of ROWS, which has
// {"conversation"}, a line with {"text"}, or {"error": true} and the reason where it cannot.
#include <cstdio>
#include <fstream>
#include <iostream>

#include "common/base/files.h"
#include "trainer/text/chat/testing/family_rows.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

Json Rendered(const jinja::Template& chat, const Json& conversation) {
  const Result<jinja::Text> text = chat.Render(RenderInputOf(conversation));
  if (text.ok()) return {{"text", text->bytes()}};
  return {{"error", true}, {"reason", text.status().message()}};
}

int Run(const std::string& path, const std::string& rows) {
  const Result<std::string> source = ReadFile(path);
  if (!source.ok()) return std::fprintf(stderr, "%s\n", source.status().message().c_str()), 1;
  const Result<jinja::Template> chat = jinja::Template::Parse(*source, path);
  if (!chat.ok()) return std::fprintf(stderr, "%s\n", chat.status().message().c_str()), 1;
  std::ifstream file(rows);
  for (std::string line; std::getline(file, line);)
    std::cout << Rendered(*chat, Json::parse(line).at("conversation")) << '\n';
  return file.eof() ? 0 : 1;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  if (argc == 3) return muster::Run(argv[1], argv[2]);
  std::fprintf(stderr, "usage: render_rows TEMPLATE ROWS\n");
  return 2;
}
