#pragma once
#include <string>
#include <vector>
#include "megalith/task/task_graph.h"
