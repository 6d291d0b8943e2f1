// Tells when the month becomes dearer than meant; it stops nothing.
param name string
param amount int
param startDate string
param emails string[]
param actionGroupId string

resource budget 'Microsoft.Consumption/budgets@2024-08-01' = {
  name: name
  properties: {
    category: 'Cost'
    amount: amount
    timeGrain: 'Monthly'
    timePeriod: {
      startDate: startDate
    }
    notifications: {
      forecast: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: emails
        contactGroups: [actionGroupId]
      }
      actual: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 80
        thresholdType: 'Actual'
        contactEmails: emails
        contactGroups: [actionGroupId]
      }
    }
  }
}
