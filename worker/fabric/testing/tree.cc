#include "worker/fabric/testing/tree.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "common/base/check.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

// What stands between braces, one by one.
std::vector<std::string> Alternatives(const std::string& text) {
  std::vector<std::string> all;
  if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
    const int last = std::stoi(text.substr(dots + 2));
    for (int i = std::stoi(text.substr(0, dots)); i <= last; ++i) all.push_back(std::to_string(i));
    return all;
  }
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    std::replace(part.begin(), part.end(), '@', ',');
    all.push_back(part);
  }
  return all;
}

// The line with every brace's value number `at`; `count` becomes how many there are.
std::string Expand(const std::string& line, std::size_t at, std::size_t* count) {
  std::string out;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t open = std::min(line.find('{', i), line.size());
    out += line.substr(i, open - i);
    if (open == line.size()) break;
    const std::size_t close = line.find('}', open);
    MUSTER_CHECK(close != std::string::npos, line);
    const std::vector<std::string> all = Alternatives(line.substr(open + 1, close - open - 1));
    *count = std::max(*count, all.size());
    out += all.at(at);
    i = close + 1;
  }
  return out;
}

}  // namespace

TreeForTest::TreeForTest(const std::string& name) {
  std::ifstream manifest(std::string(MUSTER_TEST_TREES) + "/" + name + ".tree");
  MUSTER_CHECK(manifest.good(), "no tree named " + name);
  for (std::string line; std::getline(manifest, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::size_t count = 1;
    for (std::size_t at = 0; at < count; ++at) {
      const std::string one = Expand(line, at, &count);
      const std::size_t equals = one.find(" = ");
      const std::size_t arrow = one.find(" -> ");
      if (arrow < equals) {
        const fs::path link = directory_ / one.substr(0, arrow);
        fs::create_directories(link.parent_path());
        fs::create_symlink(one.substr(arrow + 4), link);
      } else {
        MUSTER_CHECK(equals != std::string::npos, one);
        Write(one.substr(0, equals), one.substr(equals + 3));
      }
    }
  }
}

void TreeForTest::Write(const std::string& file, const std::string& line) const {
  const fs::path path = directory_ / file;
  fs::create_directories(path.parent_path());
  std::ofstream(path) << line << "\n";
}

}  // namespace muster::worker
