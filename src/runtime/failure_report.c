/* failure_report.c - what a rank leaves behind when its job fails: its flight record, and a warning that names it.
 *
 * The thread that notices the failure holds the lock, so it only marks the report as due. Whoever releases the lock
 * next writes it: if the disk hangs, that thread waits and no other does. */
#include <pthread.h>

#include "base/log.h"
#include "engine/flight_recorder.h"
#include "runtime/context.h"

void gw_context_report(gw_context *context) {
    char path[GW_FLIGHT_PATH];
    pthread_mutex_lock(&context->lock);
    bool due = context->report_due;
    gw_flight flight = context->flight;
    gw_error error = context->report;
    context->report_due = false;
    context->reports += due;
    pthread_mutex_unlock(&context->lock);
    if (!due) return; /* another thread was faster */
    if (gw_flight_write(&flight, context->rank, &error, path))
        gw_log(GW_LOG_WARN, context->rank, "%s; its last operations are in %s", error.text, path);
    else gw_log(GW_LOG_WARN, context->rank, "%s", error.text);
    pthread_mutex_lock(&context->lock);
    context->reports--;
    pthread_cond_broadcast(&context->turn);
    pthread_mutex_unlock(&context->lock);
}
