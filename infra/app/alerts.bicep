// What somebody must be told. Names of metrics are those of the app's telemetry.
param actionGroupName string
param location string
param tags object
param emails string[]
param workspaceId string
param busId string

// Of executions that ended; a cancelled one is nobody's failure.
var ended = 'AppMetrics | where Name == "weft_executions_total" | extend status = tostring(Properties.status) | where status in ("COMPLETED", "FAILED")'
// Starts that were answered; the function's own failures are `server-errors`.
var starts = 'AppRequests | where Name == "start_execution" and isnotempty(Url) and toint(ResultCode) < 500'

// What goes in and what comes of it; repairs of the kind `task` are dispatched and not begun.
var flow = 'AppMetrics | where Name in ("weft_executions_total", "weft_commits_total", "weft_repairs_total", "weft_attempts_total") | extend label = case(Name == "weft_executions_total", tostring(Properties.status), Name == "weft_repairs_total", tostring(Properties.kind), "")'

// Minutes; a minute is bad if the oldest message waited for more than 60 s in it.
var minutes = 'AppMetrics | where Name == "weft_queue_oldest_seconds" | summarize oldest = max(Sum) by minute = bin(TimeGenerated, 1m)'

// runbook: a file in docs/runbooks/; burning fast or slowly, the cause is sought alike.
var queries = [
  {
    // All others hear what the app says of itself. This one hears that it says nothing.
    name: 'silent'
    runbook: 'silent'
    title: 'The app has reported nothing for 15 minutes'
    detail: 'The sweeper measures the outbox every 15 s, whether there is work or not. No other alert can tell.'
    window: 'PT15M'
    severity: 1
    query: 'AppMetrics | where Name == "weft_outbox_age_seconds" | summarize value = count() | where value == 0'
  }
  {
    // Service Bus tells nobody how old a message is that nobody receives, so `queue-oldest` is silent
    // just then. What is accepted must be decided, and what is sent again must at last be begun.
    name: 'unheard'
    runbook: 'dispatch'
    title: 'Work is accepted or sent, and nobody takes it'
    detail: 'A trigger does not listen, or every worker is taken. In 15 minutes starts without a decision, or tasks sent again without an attempt that ended.'
    window: 'PT15M'
    severity: 1
    query: '${flow} | summarize accepted = sumif(Sum, label == "accepted" and TimeGenerated < ago(5m)), commits = sumif(Sum, Name == "weft_commits_total"), again = sumif(Sum, label == "task" and TimeGenerated < ago(5m)), attempts = sumif(Sum, Name == "weft_attempts_total") | where (accepted > 0 and commits == 0) or (again > 0 and attempts == 0)'
  }
  {
    name: 'dead-letters'
    runbook: 'dead-letters'
    title: 'Tasks were dead-lettered'
    detail: 'An execution waits for a person: weft deadletters list.'
    window: 'PT5M'
    severity: 2
    query: 'AppMetrics | where Name == "weft_dead_letters_total" | summarize value = sum(Sum) | where value > 0'
  }
  {
    name: 'queue-oldest'
    runbook: 'dispatch'
    title: 'The oldest message waits for more than 5 minutes'
    detail: 'Work comes in faster than it is done, or a trigger does not listen.'
    window: 'PT5M'
    severity: 2
    query: 'AppMetrics | where Name == "weft_queue_oldest_seconds" | summarize value = max(Sum) by tostring(Properties.queue) | where value > 300'
  }
  {
    name: 'outbox-age'
    runbook: 'outbox-age'
    title: 'The oldest unsent outbox is older than 3 minutes'
    detail: 'Change feed, relay and sweeper all failed to send: no work is started.'
    window: 'PT5M'
    severity: 1
    query: 'AppMetrics | where Name == "weft_outbox_age_seconds" | summarize value = max(Sum) | where value > 180'
  }
  {
    name: 'server-errors'
    runbook: 'server-errors'
    title: 'More than 1 % of the API requests failed with 5xx'
    detail: 'Of at least 20 requests in 5 minutes.'
    window: 'PT5M'
    severity: 1
    query: 'AppRequests | where isnotempty(Url) | summarize total = sum(ItemCount), failed = sumif(ItemCount, toint(ResultCode) >= 500) | where total >= 20 and failed * 100 > total'
  }
  {
    name: 'breaker-open'
    runbook: 'breaker-open'
    title: 'A circuit breaker is open'
    detail: 'A dependency fails; its tasks are postponed: weft breakers list.'
    window: 'PT5M'
    severity: 3
    query: 'AppMetrics | where Name == "weft_breaker_state" | summarize value = max(Sum) by tostring(Properties.dependency) | where value >= 2'
  }
  {
    name: 'completion-burn-fast'
    runbook: 'completion'
    title: 'Executions fail so often that a month of allowed failures is gone in two days'
    detail: 'Objective: 99 % of what ends completes. More than 14.4 % failed in the last hour, and still do.'
    window: 'PT1H'
    severity: 1
    query: '${ended} | summarize total = sum(Sum), failed = sumif(Sum, status == "FAILED"), totalNow = sumif(Sum, TimeGenerated > ago(5m)), failedNow = sumif(Sum, status == "FAILED" and TimeGenerated > ago(5m)) | where total >= 20 and failed > 0.144 * total and failedNow > 0.144 * totalNow'
  }
  {
    name: 'completion-burn-slow'
    runbook: 'completion'
    title: 'Executions fail so often that a month of allowed failures is gone in five days'
    detail: 'Objective: 99 % of what ends completes. More than 6 % failed in the last six hours, and still do.'
    window: 'PT6H'
    severity: 2
    query: '${ended} | summarize total = sum(Sum), failed = sumif(Sum, status == "FAILED"), totalNow = sumif(Sum, TimeGenerated > ago(30m)), failedNow = sumif(Sum, status == "FAILED" and TimeGenerated > ago(30m)) | where total >= 20 and failed > 0.06 * total and failedNow > 0.06 * totalNow'
  }
  {
    name: 'start-latency-burn-fast'
    runbook: 'start-latency'
    title: 'Starts are answered so slowly that a month of slow answers is gone in two days'
    detail: 'Objective: 99 % of starts are answered within 1 s. More than 14.4 % were not in the last hour, and still are not.'
    window: 'PT1H'
    severity: 1
    query: '${starts} | summarize total = sum(ItemCount), slow = sumif(ItemCount, DurationMs > 1000), totalNow = sumif(ItemCount, TimeGenerated > ago(5m)), slowNow = sumif(ItemCount, DurationMs > 1000 and TimeGenerated > ago(5m)) | where total >= 20 and slow > 0.144 * total and slowNow > 0.144 * totalNow'
  }
  {
    name: 'start-latency-burn-slow'
    runbook: 'start-latency'
    title: 'Starts are answered so slowly that a month of slow answers is gone in five days'
    detail: 'Objective: 99 % of starts are answered within 1 s. More than 6 % were not in the last six hours, and still are not.'
    window: 'PT6H'
    severity: 2
    query: '${starts} | summarize total = sum(ItemCount), slow = sumif(ItemCount, DurationMs > 1000), totalNow = sumif(ItemCount, TimeGenerated > ago(30m)), slowNow = sumif(ItemCount, DurationMs > 1000 and TimeGenerated > ago(30m)) | where total >= 20 and slow > 0.06 * total and slowNow > 0.06 * totalNow'
  }
  {
    name: 'dispatch-burn-fast'
    runbook: 'dispatch'
    title: 'Work waits so long that a month of allowed waiting is gone in two days'
    detail: 'Objective: in 99 % of the minutes no message waits for more than 60 s. In the last hour more than 14.4 % of the minutes were bad, and they still are.'
    window: 'PT1H'
    severity: 1
    query: '${minutes} | summarize total = count(), bad = countif(oldest > 60), totalNow = countif(minute > ago(5m)), badNow = countif(oldest > 60 and minute > ago(5m)) | where total >= 10 and bad > 0.144 * total and badNow > 0.144 * totalNow'
  }
  {
    name: 'dispatch-burn-slow'
    runbook: 'dispatch'
    title: 'Work waits so long that a month of allowed waiting is gone in five days'
    detail: 'Objective: in 99 % of the minutes no message waits for more than 60 s. In the last six hours more than 6 % of the minutes were bad, and they still are.'
    window: 'PT6H'
    severity: 2
    query: '${minutes} | summarize total = count(), bad = countif(oldest > 60), totalNow = countif(minute > ago(30m)), badNow = countif(oldest > 60 and minute > ago(30m)) | where total >= 10 and bad > 0.06 * total and badNow > 0.06 * totalNow'
  }
]

resource actions 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: actionGroupName
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'weft'
    enabled: true
    emailReceivers: [
      for (email, index) in emails: {
        name: 'email-${index}'
        emailAddress: email
        useCommonAlertSchema: true
      }
    ]
  }
}

resource rules 'Microsoft.Insights/scheduledQueryRules@2026-03-01' = [
  for rule in queries: {
    name: 'weft-${rule.name}'
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: rule.title
      description: '${rule.detail} Runbook: docs/runbooks/${rule.runbook}.md'
      severity: rule.severity
      enabled: true
      scopes: [workspaceId]
      evaluationFrequency: 'PT5M'
      windowSize: rule.window
      autoMitigate: true
      // The tables exist only after the first telemetry.
      skipQueryValidation: true
      criteria: {
        allOf: [
          {
            query: rule.query
            timeAggregation: 'Count'
            operator: 'GreaterThan'
            threshold: 0
            failingPeriods: {
              numberOfEvaluationPeriods: 1
              minFailingPeriodsToAlert: 1
            }
          }
        ]
      }
      actions: {
        actionGroups: [actions.id]
      }
    }
  }
]

// The functions empty the dead-letter queues: what stays there was not even captured.
resource stranded 'Microsoft.Insights/metricAlerts@2026-01-01' = {
  name: 'weft-stranded-messages'
  location: 'global'
  tags: tags
  properties: {
    description: 'Messages lie in a dead-letter queue and nobody takes them. Runbook: docs/runbooks/stranded-messages.md'
    severity: 1
    enabled: true
    scopes: [busId]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'dead-lettered'
          criterionType: 'StaticThresholdCriterion'
          metricNamespace: 'Microsoft.ServiceBus/namespaces'
          metricName: 'DeadletteredMessages'
          operator: 'GreaterThan'
          threshold: 0
          timeAggregation: 'Minimum'
          dimensions: [
            {
              name: 'EntityName'
              operator: 'Include'
              values: ['*']
            }
          ]
        }
      ]
    }
    actions: [
      {
        actionGroupId: actions.id
      }
    ]
  }
}

output actionGroupId string = actions.id
