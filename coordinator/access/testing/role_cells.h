// The cells of coordinator/testdata/roles.txt, and the users that its columns are. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace muster {

// By row, then by column: "++00", or one letter.
struct RoleCells {
  std::vector<std::string> columns;
  std::map<std::string, std::map<std::string, std::string>> rows;
};

inline RoleCells ReadRoleCells(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  RoleCells cells;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string row;
    words >> row;
    if (row == "columns") {
      for (std::string word; words >> word;) cells.columns.push_back(word);
      continue;
    }
    EXPECT_FALSE(cells.rows.contains(row)) << row << " is there twice";
    for (const std::string& column : cells.columns) words >> cells.rows[row][column];
  }
  return cells;
}

inline constexpr char kRoleQueues[] = R"(
queues:
  default: {}
  vision: {}
  research:
    queues:
      nlp: {}
      speech: {}
)";

inline constexpr char kRoleUsers[] = R"(
users:
  viewer:
  submitter:
  operator:
  admin:
  above:
  cluster_viewer:
  cluster_operator:
  cluster_admin:
  nobody:
  disabled: {disabled: true}
  another:
groups:
  everyone_in_nlp: [viewer, another]
roles:
  - {role: viewer, queues: [nlp], groups: [everyone_in_nlp]}
  - {role: submitter, queues: [nlp, vision], users: [another]}
  - {role: submitter, queues: [nlp], users: [submitter]}
  - {role: operator, queues: [nlp], users: [operator]}
  - {role: admin, queues: [nlp], users: [admin]}
  - {role: submitter, queues: [research], users: [above]}
  - {role: viewer, users: [cluster_viewer]}
  - {role: operator, users: [cluster_operator]}
  - {role: admin, users: [cluster_admin, disabled]}
)";

// The same users, and stranger, as they were when they submitted jobs of their own.
inline std::string UsersWhoSubmit() {
  return R"(
users: {viewer: , submitter: , operator: , admin: , above: , cluster_viewer: , cluster_operator: ,
        cluster_admin: , nobody: , disabled: , another: , stranger: }
roles:
  - {role: submitter, users: [viewer, submitter, operator, admin, above, cluster_viewer,
                              cluster_operator, cluster_admin, nobody, disabled, another, stranger]}
)";
}

}  // namespace muster
