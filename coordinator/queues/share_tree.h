// ShareTree: the queues as the scheduler shares them out. In a cluster with users each queue that
// takes jobs has a leaf below it for each owner of jobs there: they share it equally, and each leaf
// has the queue's limits per user as its ceiling. Without users it is the tree as it was applied.
//
// The applied queues come first, in their places; leaves of users follow as their jobs come, and
// stay where they are. Names of queues and users have no '/'.
//
// Plain values: who holds one owns it. Nothing here fails.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/queues/queue_tree.h"

namespace muster {

// In the place of a user's name: the leaf is for owners who have none yet.
inline constexpr char kAnyUser[] = "*";

// "nlp/ada": the name of a user's leaf.
std::string ShareName(std::string_view queue, std::string_view user);
bool IsOfUser(std::string_view share);  // a leaf of one user
// "nlp" of "nlp/ada" and of "nlp".
std::string_view QueueOfShare(std::string_view share);
// "ada" of "nlp/ada"; empty: none, or not known.
std::string_view UserOfShare(std::string_view share);

class ShareTree {
 public:
  ShareTree() : ShareTree(DefaultTree(), /*by_user=*/false) {}
  ShareTree(const QueueTree& queues, bool by_user);

  const QueueTree& tree() const { return tree_; }
  bool by_user() const { return by_user_; }
  std::size_t leaf_count() const { return tree_.queues.size() - queues_.size(); }  // of users

  // Where jobs of the queue and owner count; -1: nowhere yet. The owner matters only by user.
  int Find(std::string_view queue, std::string_view owner) const;
  // The same, with leaves that AddAnyUser has added for owners who have none.
  int FindOrAny(std::string_view queue, std::string_view owner) const;
  // Where the usage of that name counts: of a user without a leaf with the queue; -1: nowhere.
  int PlaceOfUsage(std::string_view share) const;
  // The same as Find, where by user a leaf is added if there is none.
  int Add(std::string_view queue, std::string_view owner);
  // A leaf below each queue that takes jobs, for a question about what is not there.
  void AddAnyUser();

 private:
  using Places = std::map<std::string, int, std::less<>>;
  int AddLeaf(int queue, std::string_view user);

  QueueTree tree_;
  bool by_user_ = false;
  Places queues_;
  std::vector<Places> users_;  // by queue
};

}  // namespace muster
