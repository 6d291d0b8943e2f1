// The namespace with exactly the queues of orchestrator/domain/topology.py; a test compares.
@minLength(6)
@maxLength(50)
param name string
param location string
param tags object
@allowed(['Standard', 'Premium'])
param sku string
param capacity int
param publicAccess bool
param workspaceId string

var eventsQueue = 'events'

// Duplicate detection and its window are fixed when a queue is created: a changed window needs a new
// queue. Messages carry ids only, so the smallest queue size is thousands of times what waits.
var queues = [
  {
    name: 'orchestration'
    lockDuration: 'PT5M'
    maxDeliveryCount: 10
    duplicateWindow: 'PT10M'
  }
  {
    name: 'tasks-high'
    lockDuration: 'PT1M'
    maxDeliveryCount: 10
    duplicateWindow: 'PT10M'
  }
  {
    name: 'tasks-standard'
    lockDuration: 'PT1M'
    maxDeliveryCount: 10
    duplicateWindow: 'PT10M'
  }
  {
    name: 'tasks-low'
    lockDuration: 'PT1M'
    maxDeliveryCount: 10
    duplicateWindow: 'PT10M'
  }
  {
    name: eventsQueue
    lockDuration: 'PT1M'
    maxDeliveryCount: 10
    duplicateWindow: 'PT10M'
  }
]

resource bus 'Microsoft.ServiceBus/namespaces@2026-01-01' = {
  name: name
  location: location
  tags: tags
  sku: {
    name: sku
    tier: sku
    capacity: sku == 'Premium' ? capacity : null
  }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
  }
}

// Event Grid comes through as a trusted service, under its topic's identity.
resource rules 'Microsoft.ServiceBus/namespaces/networkRuleSets@2026-01-01' = if (!publicAccess) {
  parent: bus
  name: 'default'
  properties: {
    publicNetworkAccess: 'Disabled'
    defaultAction: 'Deny'
    trustedServiceAccessEnabled: true
  }
}

resource busQueues 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' = [
  for queue in queues: {
    parent: bus
    name: queue.name
    properties: {
      lockDuration: queue.lockDuration
      maxDeliveryCount: queue.maxDeliveryCount
      requiresDuplicateDetection: true
      duplicateDetectionHistoryTimeWindow: queue.duplicateWindow
      deadLetteringOnMessageExpiration: true
      defaultMessageTimeToLive: 'P14D'
      maxSizeInMegabytes: 1024
      requiresSession: false
      enablePartitioning: false
    }
  }
]

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: bus
  name: 'to-workspace'
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        categoryGroup: 'allLogs'
        enabled: true
      }
    ]
    metrics: [
      {
        category: 'AllMetrics'
        enabled: true
      }
    ]
  }
}

output id string = bus.id
output name string = bus.name
output host string = replace(replace(bus.properties.serviceBusEndpoint, 'https://', ''), ':443/', '')
output queueNames string[] = [for (queue, index) in queues: busQueues[index].name]
output eventsQueue string = eventsQueue
