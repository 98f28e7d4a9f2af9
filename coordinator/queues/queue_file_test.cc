#include "coordinator/queues/queue_file.h"
