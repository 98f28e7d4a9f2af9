#include "coordinator/queues/queue_tree.h"
